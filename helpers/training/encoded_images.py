"""Leave a batch's JPEGs undecoded, and find out where each pixel of its crops lies in them.

Transforms of a notebook work on NumPy images. While a batch is collected, they get the place of
each pixel instead of its value. So what they return tells a decoder on the GPU what to crop.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache

import numpy as np
from PIL import Image

from helpers.errors import UserError

_files: ContextVar[list[bytes] | None] = ContextVar("files", default=None)
_BITS, _MOST = 15, 2**15 - 1
NO_VALUES = (
    'decoder = "gpu" is for transforms that crop and flip, and this notebook\'s transform does '
    'something else: write decoder = "cpu" under [data] of the recipe'
)


@contextmanager
def collected() -> Iterator[list[bytes]]:
    """Meanwhile ``Data.read`` adds files to this list, and returns the places of their pixels."""
    files: list[bytes] = []
    before = _files.set(files)
    try:
        yield files
    finally:
        _files.reset(before)


def collecting() -> bool:
    """Whether files are collected now."""
    return _files.get() is not None


def add(data: bytes) -> np.ndarray:
    """Add a JPEG; the places of its pixels, int32 (H, W, 1)."""
    with Image.open(io.BytesIO(data), formats=("JPEG",)) as image:
        width, height = image.size
    return _add(data, height, width)


def add_black(height: int, width: int) -> np.ndarray:
    """Add an image without a file, for a check whose images are black."""
    return _add(b"", height, width)


def _add(data: bytes, height: int, width: int) -> np.ndarray:
    files = _files.get()
    assert files is not None
    files.append(data)
    return _places(height, width)


@lru_cache(maxsize=64)
def _places(height: int, width: int) -> np.ndarray:
    rows, columns = np.ogrid[:height, :width]
    found: np.ndarray = (rows << _BITS | columns).astype(np.int32)[..., np.newaxis]
    found.flags.writeable = False  # the next image of this size has the same
    return found


def rows_and_columns(places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the rows and the columns of crops (N, H, W, 1) lie in their images, (N, H) and (N, W).

    Raises:
        UserError: a transform did something else than to crop and to flip.
    """
    places = places[..., 0]
    rows, columns = places[:, :, 0] >> _BITS, places[:, 0] & _MOST
    if not np.array_equal(places, rows[:, :, np.newaxis] << _BITS | columns[:, np.newaxis]):
        raise UserError(NO_VALUES)
    return rows, columns
