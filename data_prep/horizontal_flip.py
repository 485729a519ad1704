"""Copy an RGB image flipped left to right, faster than NumPy.

The compiled code (`_grey.c`) takes an eighth of the time of NumPy, which copies plane by plane and
is used if the code could not be compiled.
"""

from __future__ import annotations

import numpy as np

from data_prep.c_extension import mirror


def copy_flipped(place: np.ndarray, pixels: np.ndarray) -> None:
    """Set `place[:] = pixels[:, ::-1]`, both uint8 (height, width, channels)."""
    if mirror is not None and mirror(pixels, place):
        return
    # Plane by plane: for three planes at once NumPy copies three bytes at a time.
    for plane in range(pixels.shape[2]):
        place[..., plane] = pixels[:, ::-1, plane]
