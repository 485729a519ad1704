"""The framework-specific helper functions for Keras 3 on the PyTorch backend.

Peculiar to it: ``fit`` runs each operation as it comes, on one device; ``keras.distribution`` has
no data parallelism on PyTorch. Losses on the device are those of ``helpers.frameworks.pytorch``,
models and their weights those of ``keras_models``. Keras creates arrays on the GPU where there is
one, unless it is given another device (:func:`list_devices`). The same seed gives the same bits
on CPUs; on GPUs it need not, for cuDNN picks its algorithms by their speed (:func:`configure`).
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import torch.nn.functional as F

from helpers.errors import UnsupportedError
from helpers.frameworks import keras_models as models
from helpers.frameworks import pytorch as backend
from helpers.frameworks import row_of, weight_layout
from helpers.frameworks.keras_models import *
from helpers.frameworks.pytorch import (
    DeviceLosses,
    all_reduced,
    completion,
    configure,
    matrix_product,
    slowest,
    synchronize,
    through_layer,
)

KERNEL = "pytorch"

_row = row_of("Keras_MultiGPU", KERNEL)
# What Keras cannot do on PyTorch, and why.
SKIPPED = {**backend.SKIPPED, "several devices": _row.one_device_only if _row else ""}

_HERE = ExitStack()
"""Holds the device on which Keras makes what it makes, for as long as the process lives."""


def versions() -> dict[str, str]:
    found = {name: said for name, said in backend.versions().items() if name != "torchvision"}
    return {"keras": keras.__version__, **found}


def list_devices(kind: str, count: int, gpus: int | None = None) -> list[Device]:
    if count > 1:
        raise UnsupportedError(f"devices {count}: {SKIPPED['several devices']}")
    _HERE.close()
    _HERE.enter_context(keras.device(kind))
    return backend.list_devices(kind, count, gpus)


def gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    variables: Mapping[str, Any] = models.trained(model)
    dtype = next(iter(variables.values())).dtype
    given = weight_layout.pictures(images), targets
    x, y = (keras.ops.convert_to_tensor(part, dtype) for part in given)
    model.zero_grad()
    with models.as_wide_as(dtype):
        loss = F.binary_cross_entropy_with_logits(model(x, training=False), y)
    loss.backward()
    found = {name: variable.value.grad for name, variable in variables.items()}
    return loss.item(), {
        name: weight_layout.first(keras.ops.convert_to_numpy(each).copy())
        for name, each in found.items()
    }
