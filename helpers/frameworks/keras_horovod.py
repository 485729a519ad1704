"""The framework-specific helper functions for Keras with Horovod: Keras's, for all ranks.

Peculiar to it: Horovod's ``DistributedOptimizer`` (of 2023) does not know Keras 3's optimisers, so
the notebook's step takes its gradients through Horovod's tape for TensorFlow. Each device has a
process, a *rank*, as in ``tensorflow_horovod``.
"""

from collections.abc import Mapping
from typing import Any

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


def _trained(model: Model) -> Mapping[str, Any]:
    """The model's trainable variables, TensorFlow's own, by torchvision's names."""
    return {name: variable.value for name, variable in models.trained(model).items()}
