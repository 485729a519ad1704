"""Decode DICOM files to grey images, with the rescale and window settings of the file.

This needs pydicom, which only the environment `lab` includes: `pip install 'pydicom>=3'`.
"""

from __future__ import annotations

import io
import os
import warnings
from typing import Any

import numpy as np

from data_prep.errors import DataError

#: Transfer syntax of a file compressed as a whole: a megabyte may become gigabytes when opened.
DEFLATED_SYNTAX = b"1.2.840.10008.1.2.1.99"


def is_dicom(data: bytes) -> bool:
    """Return whether these bytes have the signature of a DICOM file."""
    return data[128:132] == b"DICM"


def decode(data: bytes, path: str | os.PathLike[str], max_pixels: int) -> np.ndarray:
    """Decode the single frame of a DICOM file to uint8 (height, width).

    Stored values go through the rescale slope and intercept (or the modality's table), then through
    the first window of the file, by its function (PS3.3, C.11.2.1); without a window, the full
    range of the stored bits becomes 0 to 255. MONOCHROME1, where high values are dark, is inverted.

    Raises `DataError`, naming the file: pydicom is missing; more than one frame; colour; too many
    pixels; compressed in a way that needs another package; damaged.
    """
    try:
        import pydicom
    except ImportError:
        raise DataError(
            f"{path}: a DICOM file, which needs the package pydicom;"
            " install it with pip install 'pydicom>=3'"
        ) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd metadata; relevant errors are raised below
            if DEFLATED_SYNTAX in data[:4096]:
                raise ValueError("deflated as a whole, which is refused; store it plain")
            file = pydicom.dcmread(io.BytesIO(data))
            _refuse_odd_kinds(file, max_pixels)
            return _displayed(file)
    except Exception as error:
        # pydicom raises nearly anything on damaged input; the meaning here is always the same.
        text = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{path}: cannot be read as a DICOM image ({text})") from None


def _refuse_odd_kinds(file: Any, max_pixels: int) -> None:
    if "PixelData" not in file:
        raise ValueError("no pixels in it")
    frames = int(file.get("NumberOfFrames") or 1)
    if frames != 1:
        raise ValueError(f"{frames} frames; an image is one")
    kind = str(file.get("PhotometricInterpretation", ""))
    if not kind.startswith("MONOCHROME") or int(file.get("SamplesPerPixel", 1)) != 1:
        raise ValueError(f"{kind or 'unknown'} pixels; MONOCHROME1 and MONOCHROME2 are read")
    if int(file.Rows) * int(file.Columns) > max_pixels:
        raise ValueError(f"{file.Columns} x {file.Rows} pixels, more than an X-ray can have")


def _displayed(file: Any) -> np.ndarray:
    """Return uint8 (height, width) of a file with one grey frame."""
    from pydicom.pixels import apply_modality_lut

    stored = file.pixel_array
    values = np.asarray(apply_modality_lut(stored, file), dtype=np.float64)
    if "WindowCenter" in file and "WindowWidth" in file:
        centre, width = _first_value(file.WindowCenter), _first_value(file.WindowWidth)
        shown = _window(values, centre, width, str(file.get("VOILUTFunction") or "LINEAR"))
    else:
        bits = int(file.BitsStored)
        low = -(1 << (bits - 1)) if int(file.get("PixelRepresentation", 0)) else 0
        ends = np.array([[low, low + (1 << bits) - 1]], dtype=stored.dtype)
        darkest, brightest = np.sort(np.asarray(apply_modality_lut(ends, file), float).ravel())
        shown = (values - darkest) / (brightest - darkest)
    if not np.isfinite(shown).all():
        raise ValueError("its window or its slope is not a number")
    grey = np.rint(np.clip(shown, 0.0, 1.0) * 255.0).astype(np.uint8)
    return 255 - grey if file.PhotometricInterpretation == "MONOCHROME1" else grey


def _window(values: np.ndarray, centre: float, width: float, function: str) -> np.ndarray:
    """Map the window's values to 0 to 1, by the formulas of PS3.3, C.11.2.1.2 and C.11.2.1.3."""
    if function == "LINEAR":
        if width < 1:
            raise ValueError(f"a window of width {width:g}; at least 1 is needed")
        if width == 1:
            return (values > centre - 0.5).astype(np.float64)
        return (values - (centre - 0.5)) / (width - 1.0) + 0.5
    if width <= 0:
        raise ValueError(f"a window of width {width:g}; more than 0 is needed")
    if function == "LINEAR_EXACT":
        return (values - centre) / width + 0.5
    if function == "SIGMOID":
        return np.asarray(
            1.0 / (1.0 + np.exp(np.clip(-4.0 * (values - centre) / width, -700, 700)))
        )
    raise ValueError(f"a window of the unknown function {function}")


def _first_value(value: Any) -> float:
    return float(value if isinstance(value, int | float | str) else next(iter(value)))
