"""The framework-specific helper functions for TensorFlow with Horovod, over all ranks.

Peculiar to Horovod: each device has a process, a *rank*, that ``mpiexec`` has started, and
Horovod's tape takes the **mean** of their gradients. So the functions here are called inside a
rank, ``devices`` holds that rank's one device, and sums go over all ranks; ``all_reduced`` starts
its own ranks (``horovod_ranks``), for the self-test.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from helpers.frameworks import horovod_ranks as ranks
from helpers.frameworks import tensorflow as alone
from helpers.frameworks.tensorflow import (
    NAME,
    SKIPPED,
    Device,
    Model,
    completion,
    configure,
    dump_optimizer,
    dump_weights,
    exact,
    gradients,
    learning_rate,
    load_optimizer,
    load_weights,
    logits,
    matrix_product,
    out_of_memory,
    shallow,
    skip,
    synchronize,
    through_layer,
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

KERNEL = ranks.KERNEL


def versions() -> dict[str, str]:
    """Versions of the framework and of the libraries its speed depends on."""
    return alone.versions() | ranks.versions()


def list_devices(kind: str, count: int, gpus: int | None = None) -> list[Device]:
    """The framework's handles for the devices of a run.

    Each is the one device that its rank sees, and so they are called the same.

    Args:
        kind: ``gpu`` or ``cpu``.
        count: number of replicas.
        gpus: number of GPUs that the replicas share; None: one GPU per replica.

    Raises:
        UserError: the devices cannot be had, or lack memory.
        UnsupportedError: the framework's replicas cannot share a GPU.
    """
    return ranks.list_devices(kind, count, gpus)


def all_reduced(shares: Sequence[np.ndarray], devices: Sequence[Device]) -> list[np.ndarray]:
    """What each device has after an all-reduce, done as the notebook does it.

    In ranks of its own.

    Args:
        shares: one float32 array (N,) per device.
        devices: handles from :func:`list_devices`.

    Returns:
        One float32 array (N,) per device: the sum of the shares.
    """
    return ranks.all_reduced(shares, devices)


class DeviceLosses(alone.DeviceLosses):
    """Sums losses where they are computed; the host reads them once per epoch."""

    def _gathered(self, own: np.ndarray) -> np.ndarray:
        """Of all ranks."""
        return ranks.gathered(own)


def slowest(seconds: float, devices: Sequence[Device]) -> float:
    """The longest time that any replica's process measured.

    Args:
        seconds: what this process measured.
        devices: handles from :func:`list_devices`.

    Returns:
        Seconds.
    """
    return float(ranks.gathered(np.array(seconds)).max())


def _trained(model: Model) -> Mapping[str, Any]:
    """The model's trainable variables by torchvision's names."""
    return {name: variable for name, variable in alone._named(model).items() if variable.trainable}
