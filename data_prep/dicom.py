"""Decode DICOM files to grey images, with the rescale and window settings of the file.

This needs pydicom, which only the environment `lab` includes: `pip install 'pydicom>=3'`.
"""

from __future__ import annotations

import io
import os
import re
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from data_prep.errors import DataError
from data_prep.files import map_in_processes, open_regular

#: Transfer syntax of a file compressed as a whole: a megabyte may become gigabytes when opened.
DEFLATED_SYNTAX = b"1.2.840.10008.1.2.1.99"

#: The value of a reader's option `group` for the patient in the header of each file.
PATIENT_GROUP = "dicom:PatientID"


def is_dicom(data: bytes) -> bool:
    """Return whether these bytes have the signature of a DICOM file."""
    return data[128:132] == b"DICM"


def decode(data: bytes, path: str | os.PathLike[str], max_pixels: int) -> np.ndarray:
    """Decode the single frame of a DICOM file to uint8 (height, width).

    Stored values go through the rescale slope and intercept (or the modality's table), then through
    the first window of the file, by its function (PS3.3, C.11.2.1); without a window, the full
    range of the stored bits becomes 0 to 255. MONOCHROME1, where high values are dark, is inverted.
    """
    pydicom = _pydicom(path)
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


def patients(folder: Path, paths: Sequence[str]) -> list[str]:
    """Return the PatientID in the header of each DICOM file.

    A damaged file, whose image cannot be read either, is a patient of its own.
    """
    found = map_in_processes(partial(_patient, folder=folder), paths, 64)
    by_path = {path: patient or path for some in found for path, patient in some}
    return [by_path[path] for path in paths]


def _patient(name: str, *, folder: Path) -> tuple[str, str | None]:
    """Return a file's name and PatientID, or None if the file is damaged."""
    path = folder / name
    pydicom = _pydicom(path)
    header = None
    try:
        with open_regular(path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            start = file.read(4096)
            if is_dicom(start) and DEFLATED_SYNTAX not in start:
                file.seek(0)
                header = pydicom.dcmread(
                    io.BufferedReader(file),  # type: ignore[type-var]
                    stop_before_pixels=True,
                    specific_tags=["PatientID"],
                )
                if patient := str(header.get("PatientID") or "").strip():
                    return name, patient
    except Exception:  # as in `decode`
        return name, None
    if header is None and path.suffix.lower() in (".dcm", ".dicom"):
        return name, None
    raise DataError(f"{path}: no PatientID in it; remove the file, or group by REGEX or not at all")


def _pydicom(path: str | os.PathLike[str]) -> Any:
    try:
        import pydicom
    except ImportError:
        raise DataError(
            f"{path}: a DICOM file, which needs the package pydicom;"
            " install it with pip install 'pydicom>=3'"
        ) from None
    return pydicom


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


def _stored(file: Any) -> np.ndarray:
    """Return the stored values, decompressed if an installed package can."""
    from pydicom.encaps import get_frame
    from pydicom.pixels import get_decoder
    from pydicom.uid import JPEGBaseline8Bit

    syntax = file.file_meta.TransferSyntaxUID
    if syntax == JPEGBaseline8Bit:  # pydicom refuses pillow-simd, whose version has a suffix
        frame = get_frame(file.PixelData, 0, number_of_frames=1)
        with Image.open(io.BytesIO(frame), formats=("JPEG",)) as image:
            if (image.mode, image.size) != ("L", (file.Columns, file.Rows)):
                raise ValueError(f"its JPEG has {image.size} pixels of mode {image.mode}")
            return np.array(image).view("i1" if file.get("PixelRepresentation") else "u1")
    if syntax.is_compressed and not (decoder := get_decoder(syntax)).is_available:
        missing = next(text for text in decoder.missing_dependencies if "pylibjpeg" in text)
        packages = " ".join(re.findall(r"pylibjpeg-\w+", missing))
        raise ValueError(
            f"compressed as {syntax.name}; to read it, run pip install pylibjpeg {packages}"
        )
    values: np.ndarray = file.pixel_array
    return values


def _displayed(file: Any) -> np.ndarray:
    """Return uint8 (height, width) of a file with one grey frame."""
    from pydicom.pixels import apply_modality_lut

    stored = _stored(file)
    values = np.asarray(apply_modality_lut(stored, file), dtype=np.float64)
    centre, width = (_first_value(file.get(tag)) for tag in ("WindowCenter", "WindowWidth"))
    if centre is not None and width is not None:
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


def _first_value(value: Any) -> float | None:
    """Return the first number of an element, or None if the element is missing or empty."""
    values = [value] if isinstance(value, int | float | str) else list(value or [])
    return None if not values or values[0] in ("", None) else float(values[0])
