"""Models, weights and optimisers of Keras 3.

A model is built by ``keras.applications``, its layers have names of their own, and images are
channels-last. The importing module sets ``KERAS_BACKEND`` before it imports this one.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import keras
import numpy as np

from helpers.errors import UserError
from helpers.frameworks import weight_layout
from helpers.frameworks.interface import Seen, Watch
from helpers.networks import custom
from helpers.networks import keras as networks
from helpers.networks.shapes import SHALLOW
from helpers.networks.weights import under
from helpers.recipe import RECIPES

NAME = "Keras"

Device: TypeAlias = Any
Model: TypeAlias = keras.Model

# Whatever ~/.keras/keras.json says.
keras.config.set_floatx("float32")
keras.config.set_image_data_format("channels_last")


def load_weights(model: Model, weights: Mapping[str, np.ndarray]) -> None:
    weight_layout.assign(variables(model), weights)


def dump_weights(model: Model) -> dict[str, np.ndarray]:
    """On TensorFlow BatchNorm's statistics are each replica's own; these are replica 0's."""
    return {
        name: weight_layout.first(variable.numpy()) for name, variable in variables(model).items()
    }


def state_of(model: Model, weights: Mapping[str, np.ndarray]) -> Any:
    """For ``set_weights``."""
    if not custom.is_own(model):
        recipe = RECIPES["chexnet"]
        for layer in model.layers:
            if isinstance(layer, keras.layers.BatchNormalization):
                layer.epsilon, layer.momentum = recipe.bn_epsilon, 1 - recipe.bn_momentum
    names = {id(variable): name for name, variable in variables(model).items()}
    return [weight_layout.last(weights[names[id(each)]]) for each in model.weights]


def load_optimizer(replica: Any, state: Mapping[str, np.ndarray]) -> None:
    weight_layout.assign_moments(_moments(replica), state)
    replica.optimizer.iterations.assign(int(state["step"]))


def dump_optimizer(replica: Any) -> dict[str, np.ndarray]:
    """Momentum's velocity is Keras's: minus PyTorch's times the rate."""
    found = weight_layout.moments_of(_moments(replica))
    return found | {"step": np.array(int(replica.optimizer.iterations.numpy()))}


def learning_rate(optimizer: Any) -> float:
    """A schedule's of the last step; the optimiser has counted on."""
    rate = optimizer._learning_rate
    if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
        rate = rate(keras.ops.maximum(optimizer.iterations - 1, 0))
    return float(keras.ops.convert_to_numpy(rate))


def watch(replica: Any) -> Watch:
    optimizer = replica.optimizer
    before = int(keras.ops.convert_to_numpy(optimizer.iterations))

    def updates() -> int:
        return int(keras.ops.convert_to_numpy(optimizer.iterations)) - before

    def seen() -> Seen:
        name, decay = type(optimizer).__name__, optimizer.weight_decay
        how = {"weight decay": decay or 0.0}
        if name == "Adam":
            name = "adam"
            how |= {"beta 1": optimizer.beta_1, "beta 2": optimizer.beta_2}
            how["epsilon"] = optimizer.epsilon
        elif name == "SGD":
            name = "momentum" if optimizer.momentum else "sgd"
            how |= {"momentum": optimizer.momentum} if optimizer.momentum else {}
        how |= {what: getattr(optimizer, what, None) or 0.0 for what in _UNUSED}
        found = {what: [float(value)] for what, value in how.items()}
        layers = replica.network._flatten_layers()
        types = {each.compute_dtype for each in layers if isinstance(each, keras.layers.Conv2D)}
        trained = optimizer._trainable_variables
        return Seen(
            name,
            found,
            updates(),
            "/".join(sorted(types)) or None,
            _execution(replica.model),
            weights=sum(math.prod(each.shape) for each in trained),
        )

    def held() -> list[np.ndarray]:
        last = [*trained(replica.network).values()][-1].value
        return [each.numpy() for each in getattr(last, "values", (last,))]

    return Watch(partial(learning_rate, optimizer), updates, seen, held, waits=True)


def exact(
    build_model: Callable[[Mapping[str, np.ndarray]], Model], weights: Mapping[str, np.ndarray]
) -> Model:
    before = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64")  # of the input
    keras.config.set_dtype_policy("float64")  # of the layers
    try:
        return build_model(weights)
    finally:
        keras.config.set_floatx(before[0])
        keras.config.set_dtype_policy(before[1])


def shallow(weights: Mapping[str, np.ndarray], devices: Sequence[Device]) -> Model:
    """With float32 weights, the current dtype policy decides the precision of the computation."""
    build = partial(networks.build, SHALLOW, recipe=RECIPES["chexnet"])
    doubles = weights["classifier.bias"].dtype == np.float64
    model = exact(build, weights) if doubles else build(weights)
    load_weights(model, weights)
    return model


def logits(model: Model, images: np.ndarray) -> np.ndarray:
    found = model(_batch(model, images), training=False)
    return keras.ops.convert_to_numpy(found)


def train_forward(model: Model, images: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    before = dump_weights(model)
    found = model(_batch(model, images), training=True)
    after = dump_weights(model)
    load_weights(model, before)
    return keras.ops.convert_to_numpy(found), after


_UNUSED = ("amsgrad", "nesterov", "use_ema", "clipnorm", "clipvalue", "global_clipnorm")
"""Options of Keras's optimisers that no recipe uses."""

PARTS = {
    "kernel": "weight",
    "gamma": "weight",
    "beta": "bias",
    "bias": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}
"""Keras's names of what a layer holds, and torchvision's."""


def trained(model: Model) -> dict[str, keras.Variable]:
    """The model's trainable variables by the names of :func:`variables`."""
    trainable = {id(variable) for variable in model.trainable_variables}
    found = variables(model)
    return {name: variable for name, variable in found.items() if id(variable) in trainable}


def variables(model: Model) -> dict[str, keras.Variable]:
    """The model's variables by torchvision's names; those of a custom network by Keras's."""
    if custom.is_own(model):
        return _by_path(model)
    return {
        f"{_layer(layer.name)}.{PARTS[variable.name]}": variable
        for layer in model.layers
        for variable in layer.variables
    }


def _batch(model: Model, images: np.ndarray) -> Any:
    """(N, 3, H, W) as the channels-last tensor that the model is given."""
    return keras.ops.convert_to_tensor(weight_layout.pictures(images), model.compute_dtype)


def _by_path(model: Model) -> dict[str, keras.Variable]:
    """The model's variables by their paths, ``conv2d_1/kernel``, numbered anew in each model."""
    found, names = {}, {}
    taken: Counter[str] = Counter()
    for variable in model.variables:
        layer, _, part = variable.path.rpartition("/")
        if layer not in names:
            kind = re.sub(r"_\d+(?=/|$)", "", layer)
            names[layer] = f"{kind}_{taken[kind]}" if taken[kind] else kind
            taken[kind] += 1
        found[f"{names[layer]}/{part}"] = variable
    if len(found) < len(model.variables):
        raise UserError("two layers of your network have the same name: give each another name")
    return found


def _execution(model: Model) -> str:
    if model.run_eagerly:
        return "eager"
    parts = (getattr(part, "_jit_compile", False) for part in vars(type(model)).values())
    return "compiled (tf.function, XLA)" if any(parts) else "graph (tf.function)"


def _moments(replica: Any) -> dict[str, dict[str, keras.Variable]]:
    """The variables in which Keras's optimiser keeps its moments, by torchvision's names."""
    optimizer = replica.optimizer
    names = {id(variable): name for name, variable in variables(replica.network).items()}
    updated = [names[id(variable)] for variable in optimizer._trainable_variables]
    if isinstance(optimizer, keras.optimizers.Adam):
        lists = {"first": optimizer._momentums, "second": optimizer._velocities}
    else:
        lists = {"first": optimizer.momentums} if optimizer.momentum else {}
    return {moment: dict(zip(updated, found, strict=True)) for moment, found in lists.items()}


def _layer(name: str) -> str:
    """torchvision's name of a layer of ``keras.applications.DenseNet121``.

    Keras counts the stem as stage 1, so its conv2_block3_1_conv is denseblock1.denselayer3.conv1.
    """
    stem = {
        "conv1_conv": "features.conv0",
        "conv1_bn": "features.norm0",
        "bn": "features.norm5",
        "predictions": "classifier",
    }
    if name in stem:
        return stem[name]
    stage, *rest = name.split("_")
    if stage.startswith("pool"):
        kind = {"bn": "norm", "conv": "conv"}[rest[0]]
        return f"features.transition{int(stage[4:]) - 1}.{kind}"
    if not stage.startswith("conv") or len(rest) != 3:
        return name.replace("_", ".")  # of a ResNet
    block, number, kind = rest
    part = f"norm{int(number) + 1}" if kind == "bn" else f"conv{number}"
    return f"features.denseblock{int(stage[4:]) - 1}.denselayer{block[5:]}.{part}"
