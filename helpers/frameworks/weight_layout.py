"""Convert weights between the canonical layout and a channels-last one, and check that they fit."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def last(array: np.ndarray) -> np.ndarray:
    """OIHW to HWIO, and the classifier's (out, in) to (in, out)."""
    return array.transpose((2, 3, 1, 0)) if array.ndim == 4 else array.T


def first(array: np.ndarray) -> np.ndarray:
    """The inverse of :func:`last`, as a copy of its own."""
    return np.ascontiguousarray(array.transpose((3, 2, 0, 1)) if array.ndim == 4 else array.T)


def pictures(images: np.ndarray) -> np.ndarray:
    """Images (N, 3, H, W) as (N, H, W, 3)."""
    return np.ascontiguousarray(images.transpose((0, 2, 3, 1)))


def check(variables: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> None:
    """See to it that there is an array for each of the channels-last ``variables``, and no other.

    Raises:
        ValueError: an array is missing, or there is one without a variable of its shape.
    """
    wrong = sorted(variables.keys() ^ weights.keys()) or [
        name
        for name, variable in variables.items()
        if tuple(variable.shape) != last(weights[name]).shape
    ]
    refuse(wrong)


def refuse(wrong: Sequence[str]) -> None:
    """Raise ValueError if there are names of weights that do not fit the model."""
    if wrong:
        raise ValueError(f"weights do not fit the model: {wrong[0]} (and {len(wrong) - 1} more)")
