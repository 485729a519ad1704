"""The few framework-bound helpers, for Keras 3 on the TensorFlow backend.

Peculiar to Keras: a model is built by ``keras.applications``, its layers have names of their own,
and ``fit`` runs it on the devices through ``tf.distribute.MirroredStrategy``. Devices, losses on
them and the layout of weights are those of ``helpers.frameworks.tensorflow``. The same seed gives
the same bits on CPUs, from process to process too; on GPUs it need not.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

from helpers.frameworks import tensorflow as backend  # before Keras: it imports TensorFlow quietly

# isort: split
import keras
import numpy as np

from helpers.errors import UserError
from helpers.networks import own
from helpers.networks.weights import under
from helpers.recipe import RECIPES

NAME = "Keras"
KERNEL = "tensorflow"

Device: TypeAlias = str
Model: TypeAlias = keras.Model

# What Keras cannot do, and why.
SKIPPED = {
    what: backend.SKIPPED[what]
    for what in ("tf32 on CPUs", "the same bits from the same seed on GPUs")
}


def versions() -> dict[str, str]:
    """Versions of the framework and of the libraries its speed depends on."""
    return {"keras": keras.__version__, **backend.versions()}


def list_devices(kind: str, count: int, gpus: int | None = None) -> list[Device]:
    """The framework's handles for the devices of a run.

    Args:
        kind: ``gpu`` or ``cpu`` (virtual devices).
        count: number of replicas.
        gpus: number of GPUs that the replicas share; None: one GPU per replica.

    Raises:
        UserError: the devices cannot be had, or lack memory.
        UnsupportedError: the framework's replicas cannot share a GPU.
    """
    return backend.list_devices(kind, count, gpus)


def configure(precision: str, kind: str) -> None:
    """Set the process up for a precision, and for speed on the given kind of device.

    The notebook says what is cast (Keras's dtype policies).

    Args:
        precision: ``fp32``, ``tf32``, ``bf16`` or ``fp16``.
        kind: ``gpu`` or ``cpu``.

    Raises:
        UnsupportedError: the framework cannot compute in this precision there.
    """
    backend.configure(precision, kind)


def synchronize(devices: Sequence[Device]) -> None:
    """Wait until the devices have finished all queued work; for timing only."""
    backend.synchronize(devices)


def completion(result: Any) -> Callable[[], None] | None:
    """A callable that waits until ``result`` has been computed; None if it already has.

    Args:
        result: what a step returned.

    Returns:
        A callable for another thread, which does not wait for work queued later.
    """
    return backend.completion(result)


def load_weights(model: Model, weights: Mapping[str, np.ndarray]) -> None:
    """Copy canonical weights into ``model``, on every replica.

    Args:
        model: the notebook's model.
        weights: float arrays by torchvision's names; convolutions are (out, in, height, width).

    Raises:
        ValueError: an array is missing, or there is one that the model has not.
    """
    backend._assign(_variables(model), weights)


def dump_weights(model: Model) -> dict[str, np.ndarray]:
    """The model's weights in the canonical layout; the inverse of :func:`load_weights`.

    BatchNorm's statistics are each replica's own; these are replica 0's.
    """
    return {
        name: backend._channels_first(variable.numpy())
        for name, variable in _variables(model).items()
    }


def load_optimizer(
    model: Model, optimizer: Any, state: Mapping[str, np.ndarray], scaler: Any = None
) -> None:
    """Restore the optimiser's state as :func:`dump_optimizer` returned it.

    The factor of fp16's loss is a ``LossScaleOptimizer``'s own, so there is no ``scaler``.

    Args:
        model: the model whose weights the optimiser updates.
        optimizer: the optimiser to restore.
        state: arrays by name; if empty, nothing changes.
        scaler: what multiplies fp16's loss, if that is not part of the optimiser.
    """
    if not state:
        return
    factor = _in_velocity(optimizer)
    for moment, variables in _moments(model, optimizer).items():
        found = under(f"{moment}/", state)
        backend._assign(variables, {name: factor * array for name, array in found.items()})
    optimizer.iterations.assign(int(state["step"]))
    if "scale" in state:
        optimizer.dynamic_scale.assign(float(state["scale"]))


def dump_optimizer(model: Model, optimizer: Any, scaler: Any = None) -> dict[str, np.ndarray]:
    """The optimiser's state as arrays in the canonical layout.

    Args:
        model: the model whose weights the optimiser updates.
        optimizer: the optimiser to save.
        scaler: what multiplies fp16's loss, if that is not part of the optimiser.

    Returns:
        Adam's two moments of each weight (``first/...``, ``second/...``), or momentum's velocity
        (``first/...``) as PyTorch has it, without the rate; the number of steps (``step``) and, if
        something scales fp16's loss, its factor (``scale``).
    """
    factor = _in_velocity(optimizer)
    found = {
        f"{moment}/{name}": backend._channels_first(variable.numpy()) / factor
        for moment, variables in _moments(model, optimizer).items()
        for name, variable in variables.items()
    }
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        found["scale"] = np.array(optimizer.dynamic_scale.numpy())
    return found | {"step": np.array(int(optimizer.iterations.numpy()))}


def learning_rate(optimizer: Any) -> float:
    """The learning rate of the optimiser's last step."""
    return backend.learning_rate(optimizer)


def exact(
    build_model: Callable[[Mapping[str, np.ndarray]], Model], weights: Mapping[str, np.ndarray]
) -> Model:
    """The notebook's model in float64.

    Args:
        build_model: the notebook's function, which makes a model of canonical weights.
        weights: arrays by torchvision's names.
    """
    before = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64")  # of the input
    keras.config.set_dtype_policy("float64")  # of the layers
    try:
        return build_model(weights)
    finally:
        keras.config.set_floatx(before[0])
        keras.config.set_dtype_policy(before[1])


def shallow(weights: Mapping[str, np.ndarray], devices: Sequence[Device]) -> Model:
    """A network of one convolution, BatchNorm and classifier, to test a training loop on.

    With float32 weights, the current dtype policy decides the precision of the computation.

    Args:
        weights: arrays by the names in ``shapes.SHALLOW``; their dtype is the network's.
        devices: the devices that hold a replica.
    """
    recipe, kept = RECIPES["chexnet"], str(weights["classifier.bias"].dtype)
    dtype = keras.config.dtype_policy() if kept == "float32" else kept
    images = keras.Input((None, None, 3), dtype=kept)
    x = keras.layers.ZeroPadding2D(3, dtype=dtype)(images)
    x = keras.layers.Conv2D(64, 7, 2, use_bias=False, name="conv1_conv", dtype=dtype)(x)
    momentum, epsilon = 1 - recipe.bn_momentum, recipe.bn_epsilon
    norm = keras.layers.BatchNormalization(-1, momentum, epsilon, name="conv1_bn", dtype=dtype)
    x = keras.layers.ReLU(dtype=dtype)(norm(x))
    x = keras.layers.GlobalAveragePooling2D(dtype=dtype)(x)
    logits = keras.layers.Dense(14, name="predictions", dtype=kept)(x)
    model = keras.Model(images, logits)
    load_weights(model, weights)
    return model


def logits(model: Model, images: np.ndarray) -> np.ndarray:
    """The model's logits in evaluation mode.

    Args:
        model: the notebook's model.
        images: normalised floats (N, 3, H, W).

    Returns:
        Logits before the sigmoid (N, outputs).
    """
    batch = backend._batch(images, model.compute_dtype)
    return np.asarray(model(batch, training=False))


def train_forward(model: Model, images: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """A forward pass in training mode, on one device.

    Args:
        model: the notebook's model; it is not changed.
        images: normalised floats (N, 3, H, W).

    Returns:
        Logits (N, outputs), and the weights after the pass, in which only BatchNorm's running
        statistics differ.
    """
    before = dump_weights(model)
    found = model(backend._batch(images, model.compute_dtype), training=True)
    after = dump_weights(model)
    load_weights(model, before)
    return np.asarray(found), after


def gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    """Loss and gradients of the mean loss, as the optimiser would get them.

    As in ``fit``, every replica takes the mean over its own share, and these are averaged.

    Args:
        model: the notebook's model; BatchNorm uses its running statistics, so that the split over
            devices cannot change the result.
        images: normalised floats (N, 3, H, W).
        targets: labels (N, outputs), 0 or 1.
        devices: the devices that share the batch.

    Returns:
        The mean loss, and the gradients by torchvision's names.
    """
    trainable = {id(variable) for variable in model.trainable_variables}
    variables = {
        name: variable.value
        for name, variable in _variables(model).items()
        if id(variable) in trainable
    }
    return backend._gradients(
        lambda x: model(x, training=False), variables, images, targets, devices, equal_shares=True
    )


def through_layer(
    layer: str, arrays: Mapping[str, np.ndarray], device: Device
) -> dict[str, np.ndarray]:
    """One layer, forward and backward, on one device; for the probe.

    Args:
        layer: its name in ``helpers.runner.probe.known``, which says what it computes.
        arrays: the layer's inputs by name; ``gradient`` flows back from its output.
        device: a handle from :func:`list_devices`.

    Returns:
        ``output``, and the gradient of each array except ``gradient``, by its name.
    """
    return backend.through_layer(layer, arrays, device)


def all_reduced(shares: Sequence[np.ndarray], devices: Sequence[Device]) -> list[np.ndarray]:
    """What each device has after an all-reduce, done as the notebook does it.

    Keras has no all-reduce of its own: this is that of ``tf.distribute``.

    Args:
        shares: one float32 array (N,) per device.
        devices: handles from :func:`list_devices`.

    Returns:
        One float32 array (N,) per device: the sum of the shares.
    """
    return backend.all_reduced(shares, devices)


class DeviceLosses:
    """Sums losses where they are computed; the host reads them once per epoch.

    ``fit`` does the same: its metric ``loss`` keeps a sum on every replica.
    """

    def __init__(self, devices: Sequence[Device]) -> None:
        self._losses = backend.DeviceLosses(devices)

    def add(self, position: int, loss: Any, images: int) -> None:
        """Add the mean ``loss`` over ``images`` images, a scalar on device number ``position``."""
        self._losses.add(position, loss, images)

    def mean(self) -> float:
        """Mean loss per image over all devices; waits for them."""
        return self._losses.mean()


def slowest(seconds: float, devices: Sequence[Device]) -> float:
    """The longest time that any replica's process measured.

    Here there is one process.

    Args:
        seconds: what this process measured.
        devices: handles from :func:`list_devices`.

    Returns:
        Seconds.
    """
    return backend.slowest(seconds, devices)


def out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` (or the replica's error behind it) says that memory ran out."""
    return backend.out_of_memory(error)


def skip(capability: str) -> str | None:
    """Why the framework cannot do something; None if it can.

    Args:
        capability: its name, as in ``SKIPPED``.
    """
    return SKIPPED.get(capability)


PARTS = {
    "kernel": "weight",
    "gamma": "weight",
    "beta": "bias",
    "bias": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}
"""Keras's names of what a layer holds, and torchvision's."""


def _variables(model: Model) -> dict[str, keras.Variable]:
    """The model's variables by torchvision's names; of somebody's own network by Keras's."""
    if own.is_own(model):
        return _by_path(model)
    return {
        f"{_layer(layer.name)}.{PARTS[variable.name]}": variable
        for layer in model.layers
        for variable in layer.variables
    }


def _by_path(model: Model) -> dict[str, keras.Variable]:
    """The model's variables by their paths, such as ``conv2d_1/kernel``.

    Keras numbers the layers of a whole session; here those of a model, so that each time that it
    is made they are called the same.
    """
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
        raise UserError("two layers of your own network have one name: give each its own")
    return found


def _moments(model: Model, optimizer: Any) -> dict[str, dict[str, keras.Variable]]:
    """The variables in which Keras's optimiser keeps its moments, by torchvision's names."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)  # of a LossScaleOptimizer
    names = {id(variable): name for name, variable in _variables(model).items()}
    trained = [names[id(variable)] for variable in inner._trainable_variables]
    if isinstance(inner, keras.optimizers.Adam):
        lists = {"first": inner._momentums, "second": inner._velocities}
    else:
        lists = {"first": inner.momentums} if inner.momentum else {}
    return {moment: dict(zip(trained, found, strict=True)) for moment, found in lists.items()}


def _in_velocity(optimizer: Any) -> float:
    """What Keras multiplies momentum's velocity by: minus the rate, which PyTorch keeps apart."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return 1.0 if isinstance(inner, keras.optimizers.Adam) else -learning_rate(optimizer)


def _layer(name: str) -> str:
    """torchvision's name of a layer of ``keras.applications.DenseNet121``.

    Keras counts the stem as stage 1, so its conv2_block3_1_conv is denseblock1.denselayer3.conv1;
    there 0_bn, 1_bn, 1_conv, 2_conv are norm1, norm2, conv1, conv2.
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
        return name
    block, number, kind = rest
    part = f"norm{int(number) + 1}" if kind == "bn" else f"conv{number}"
    return f"features.denseblock{int(stage[4:]) - 1}.denselayer{block[5:]}.{part}"
