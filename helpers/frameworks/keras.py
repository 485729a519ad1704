"""The framework-specific helper functions for Keras 3 on the TensorFlow backend.

Peculiar to it: ``fit`` runs on the devices through ``tf.distribute.MirroredStrategy``. Devices and
losses on them are those of ``helpers.frameworks.tensorflow``, models and their weights those of
``keras_models``. The same seed gives the same bits on CPUs, from process to process too; on GPUs
it need not.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

os.environ["KERAS_BACKEND"] = "tensorflow"

from helpers.frameworks import tensorflow as backend  # before Keras: it imports TensorFlow quietly

# isort: split
import keras
import numpy as np

from helpers.frameworks import keras_models as models
from helpers.frameworks.keras_models import (
    NAME,
    Model,
    dump_optimizer,
    dump_weights,
    exact,
    learning_rate,
    load_optimizer,
    load_weights,
    logits,
    shallow,
    train_forward,
    watch,
)

__all__ = [
    "KERNEL",
    "NAME",
    "SKIPPED",
    "Device",
    "DeviceLosses",
    "Model",
    "all_reduced",
    "completion",
    "configure",
    "dump_optimizer",
    "dump_weights",
    "exact",
    "gradients",
    "learning_rate",
    "list_devices",
    "load_optimizer",
    "load_weights",
    "logits",
    "matrix_product",
    "out_of_memory",
    "shallow",
    "skip",
    "slowest",
    "synchronize",
    "through_layer",
    "train_forward",
    "versions",
    "watch",
]

KERNEL = "tensorflow"

Device: TypeAlias = str

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
        kind: ``gpu`` or ``cpu``.
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
    variables = {name: variable.value for name, variable in models.trained(model).items()}
    return backend._gradients(
        lambda x: model(x, training=False), variables, images, targets, devices, equal_shares=True
    )


def through_layer(
    layer: str, arrays: Mapping[str, np.ndarray], device: Device
) -> dict[str, np.ndarray]:
    """One layer, forward and backward, on one device; for the self-test.

    Args:
        layer: its name in ``helpers.runner.self_test.expected``, which says what it computes.
        arrays: the layer's inputs by name; ``gradient`` flows back from its output.
        device: a handle from :func:`list_devices`.

    Returns:
        ``output``, and the gradient of each array except ``gradient``, by its name.
    """
    return backend.through_layer(layer, arrays, device)


def matrix_product(size: int, dtype: str, device: Device) -> Callable[[], None]:
    """A callable that multiplies two square matrices on one device and waits for the result.

    Args:
        size: rows of a matrix, and columns.
        dtype: ``float32``, ``bfloat16`` or ``float16``.
        device: a handle from :func:`list_devices`.

    Returns:
        The callable. The matrices are already on the device.
    """
    return backend.matrix_product(size, dtype, device)


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
