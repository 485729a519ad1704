"""The framework-specific helper functions for Keras 3 on the TensorFlow backend.

Peculiar to it: ``fit`` runs on the devices through ``tf.distribute.MirroredStrategy``. Devices and
losses on them are those of ``helpers.frameworks.tensorflow``, models and their weights those of
``keras_models``. The same seed gives the same bits on CPUs, from process to process too; on GPUs
it need not.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"

from helpers.frameworks import tensorflow as backend  # before Keras: it imports TensorFlow quietly

# isort: split
import keras
import numpy as np

from helpers.frameworks import keras_models as models
from helpers.frameworks.keras_models import *
from helpers.frameworks.tensorflow import (
    DeviceLosses,
    all_reduced,
    completion,
    configure,
    list_devices,
    matrix_product,
    slowest,
    synchronize,
    through_layer,
)

KERNEL = "tensorflow"

# What Keras cannot do, and why.
SKIPPED = {
    what: backend.SKIPPED[what]
    for what in ("tf32 on CPUs", "the same bits from the same seed on GPUs")
}


def versions() -> dict[str, str]:
    return {"keras": keras.__version__, **backend.versions()}


def gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    """As in ``fit``, every replica takes the mean over its own share, and these are averaged."""
    return backend.split_gradients(
        lambda x: model(x, training=False),
        _trained(model),
        images,
        targets,
        devices,
        equal_shares=True,
    )


def _trained(model: Model) -> Mapping[str, Any]:
    """The model's trainable variables, TensorFlow's own, by torchvision's names."""
    return {name: variable.value for name, variable in models.trained(model).items()}
