"""The few framework-bound helpers, for Keras with Horovod: Keras's own, over all ranks.

Peculiar to it: Horovod's ``DistributedOptimizer`` (of 2023) does not know Keras 3's optimisers, so
the notebook's step takes its gradients through Horovod's tape for TensorFlow. Each device has a
process, a *rank*, as in ``tensorflow_horovod``; what needs one for each device (``gradients``,
``all_reduced``) starts some of its own (``horovod_ranks``).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from helpers.frameworks import horovod_ranks as ranks
from helpers.frameworks import keras as alone
from helpers.frameworks import keras_models as models
from helpers.frameworks.keras import (
    NAME,
    SKIPPED,
    Device,
    Model,
    completion,
    configure,
    dump_optimizer,
    dump_weights,
    exact,
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
from helpers.frameworks.tensorflow_horovod import DeviceLosses, all_reduced, list_devices, slowest

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


def gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    """Loss and gradients of the mean loss, as the optimiser would get them.

    On one device it is that rank's own affair, whoever else is in the world.

    Args:
        model: the notebook's model; BatchNorm uses its running statistics, so that the split over
            devices cannot change the result.
        images: normalised floats (N, 3, H, W).
        targets: labels (N, outputs), 0 or 1.
        devices: the devices that share the batch.

    Returns:
        The mean loss, and the gradients by torchvision's names.
    """
    if len(devices) == 1:
        return alone.gradients(model, images, targets, devices)
    return ranks.gradients(model, _trained, images, targets, devices)


def _trained(model: Model) -> Mapping[str, Any]:
    """The model's trainable variables, TensorFlow's own, by torchvision's names."""
    return {name: variable.value for name, variable in models.trained(model).items()}
