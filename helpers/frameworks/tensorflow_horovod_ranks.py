"""TensorFlow with Horovod over several nodes; ``mpiexec`` gives its processes their settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def gradients(
    framework: Any,
    model: Any,
    images: np.ndarray,
    targets: np.ndarray,
    devices: Sequence[str],
) -> tuple[float, dict[str, np.ndarray]]:
    """Loss and gradients of the mean loss over all ranks, as the optimiser would get them.

    They are what Horovod's tape gives, the means over all ranks.

    Args:
        framework: the framework module, in this folder.
        model: the notebook's model; BatchNorm uses its running statistics.
        images: normalised floats (N, 3, H, W), those of all ranks.
        targets: labels (N, outputs), 0 or 1.
        devices: this process's.

    Returns:
        The mean loss, and the gradients by torchvision's names.
    """
    from helpers.frameworks import horovod_ranks

    return horovod_ranks.mean_gradients(model, framework._trained, images, targets)
