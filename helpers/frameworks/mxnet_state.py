"""Gluon's weights and optimiser state as NumPy arrays, and back.

Names are Gluon's own, so weights are mapped by position: ``collect_params()`` walks a network in
torchvision's order, and both frameworks keep convolutions as OIHW and the dense layer as (outputs,
inputs).
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import mxnet as mx
import numpy as np
from mxnet import gluon

from helpers.frameworks import weight_layout
from helpers.networks import custom
from helpers.networks.shapes import names_by_count
from helpers.recipe import RECIPES

Model: TypeAlias = gluon.HybridBlock


def load_weights(model: Model, weights: Mapping[str, np.ndarray]) -> None:
    parameters = named(model)
    weight_layout.refuse(sorted(parameters.keys() ^ weights.keys()))
    for name, parameter in parameters.items():
        array, known = weights[name], parameter.shape
        # A zero is a size that Gluon would infer at the first batch.
        if len(known) != array.ndim or any(
            size not in (0, -1, wanted) for size, wanted in zip(known, array.shape, strict=True)
        ):
            raise ValueError(f"weights do not fit the model: {name} {array.shape}, not {known}")
        if known != array.shape:
            parameter.shape = array.shape
            parameter.initialize(mx.init.Zero(), parameter.list_ctx(), force_reinit=True)
        parameter.set_data(mx.nd.array(array, dtype=array.dtype))


def dump_weights(model: Model) -> dict[str, np.ndarray]:
    """BatchNorm's statistics, of which each device has its own, are means, as Gluon saves them."""
    return {name: _read(parameter) for name, parameter in named(model).items()}


def load_optimizer(replica: Any, state: Mapping[str, np.ndarray]) -> None:
    optimizer = replica.optimizer
    # The weights count their steps from here, on every device.
    optimizer.optimizer.begin_num_update = optimizer.optimizer.num_update = int(state["step"])
    factor = _in_velocity(optimizer)
    for name, number in _numbers(replica).items():
        for updater, device in zip(optimizer._updaters, optimizer._contexts, strict=True):
            found = [
                mx.nd.array(factor * state[f"{moment}/{name}"], device)
                for moment in ("first", "second")
                if f"{moment}/{name}" in state
            ]
            # Adam's is a pair, momentum's the array itself, plain SGD's nothing.
            updater.states[number] = (
                tuple(found) if len(found) == 2 else found[0] if found else None
            )
            updater.states_synced[number] = True


def dump_optimizer(replica: Any) -> dict[str, np.ndarray]:
    optimizer = replica.optimizer
    found, factor = {}, _in_velocity(optimizer)
    states = optimizer._updaters[0].states  # every device has the same
    for name, number in _numbers(replica).items():
        kept = states[number] if isinstance(states[number], tuple) else (states[number],)
        for moment, array in zip(("first", "second"), kept, strict=False):
            if array is not None:
                kind = np.float32 if factor == 1 else np.float64  # the same bits when loaded again
                found[f"{moment}/{name}"] = array.asnumpy().astype(kind) / factor
    return found | {"step": np.array(optimizer.optimizer.num_update)}


def state_of(model: Model, weights: Mapping[str, np.ndarray]) -> Any:
    """For ``collect_params().load_dict``."""
    recipe = RECIPES["chexnet"]

    def as_in_recipe(layer: Any) -> None:
        if isinstance(layer, gluon.nn.BatchNorm):
            layer._kwargs.update(eps=recipe.bn_epsilon, momentum=1 - recipe.bn_momentum)

    if not custom.is_own(model):
        model.apply(as_in_recipe)
    parameters = named(model)
    weight_layout.refuse(sorted(parameters.keys() ^ weights.keys()))
    return {each.name: mx.nd.array(weights[name]) for name, each in parameters.items()}


def named(model: Model) -> dict[str, Any]:
    """The model's parameters by their canonical names, which are in the same order.

    Those of a custom network have the names of ``save_parameters``, which are their paths.
    """
    if custom.is_own(model):
        return dict(model._collect_params_with_prefix())
    parameters = list(model.collect_params().values())
    return dict(zip(names_by_count(len(parameters)), parameters, strict=True))


def _numbers(replica: Any) -> dict[str, int]:
    """The numbers by which a ``Trainer`` knows what it trains, by the canonical names."""
    numbers = {each.name: number for number, each in enumerate(replica.optimizer._params)}
    return {
        name: numbers[parameter.name]
        for name, parameter in named(replica.network).items()
        if parameter.name in numbers
    }


def _in_velocity(optimizer: Any) -> float:
    """What MXNet multiplies momentum's velocity by: minus the rate, which PyTorch keeps apart."""
    adam = isinstance(optimizer.optimizer, mx.optimizer.Adam)
    return 1.0 if adam else -float(optimizer.learning_rate)


def _read(parameter: Any) -> np.ndarray:
    copies = parameter.list_data()
    if parameter.grad_req != "null" or len(copies) == 1:
        return copies[0].asnumpy()
    mean = np.mean([copy.asnumpy() for copy in copies], axis=0, dtype=np.float64)
    return mean.astype(parameter.dtype)
