"""TensorFlow's weights and optimiser state as NumPy arrays, and back.

Convolutions are HWIO here, OIHW in the canonical layout, and the classifier is transposed.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from helpers.frameworks import tensorflow_strategies, weight_layout
from helpers.networks import custom

Model: TypeAlias = tf.Module


def load_weights(model: Model, weights: Mapping[str, np.ndarray]) -> None:
    weight_layout.assign(named(model), weights)


def dump_weights(model: Model) -> dict[str, np.ndarray]:
    """BatchNorm's statistics are each replica's own; these are replica 0's."""
    return {name: weight_layout.first(v.numpy()) for name, v in named(model).items()}


def load_optimizer(replica: Any, state: Mapping[str, np.ndarray]) -> None:
    weight_layout.assign_moments(_moments(replica), state)
    replica.optimizer.step.assign(float(state["step"]))


def dump_optimizer(replica: Any) -> dict[str, np.ndarray]:
    found = weight_layout.moments_of(_moments(replica))
    return found | {"step": np.array(int(replica.optimizer.step.numpy()))}


def state_of(model: Model, weights: Mapping[str, np.ndarray]) -> Any:
    """An array for each of ``model.variables``; its epsilon and momentum are the recipe's."""
    tensorflow_strategies.note(model.variables)
    weight_layout.check(found := named(model), weights)
    arrays = {id(each): weight_layout.last(weights[name]) for name, each in found.items()}
    return [arrays[id(variable)] for variable in model.variables]


def named(model: Model) -> dict[str, tf.Variable]:
    """The model's variables by their names, torchvision's.

    Those of a custom network by their paths, ``layers.0.kernel``, because many share a name.
    """
    if custom.is_own(model):
        found = model._flatten(predicate=lambda part: isinstance(part, tf.Variable), with_path=True)
        return {".".join(map(str, path)): variable for path, variable in found}
    return {variable.name.removesuffix(":0"): variable for variable in model.variables}


def trained(model: Model) -> dict[str, tf.Variable]:
    return {name: variable for name, variable in named(model).items() if variable.trainable}


def _moments(replica: Any) -> dict[str, dict[str, tf.Variable]]:
    """The variables in which the notebook's optimiser keeps its moments, by the weights' names."""
    optimizer = replica.optimizer
    known = {id(variable): name for name, variable in named(replica.network).items()}
    names = [known[id(weight)] for weight in optimizer.weights]
    moments = {"adam": ["first", "second"], "momentum": ["first"]}.get(optimizer.rule, [])
    lists = zip(moments, optimizer.moments, strict=False)
    return {moment: dict(zip(names, found, strict=True)) for moment, found in lists}
