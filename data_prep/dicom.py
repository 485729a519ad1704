"""Decode DICOM files with pydicom, which only the environment `lab` includes."""

from __future__ import annotations

import io
import os
import re
import warnings
from typing import Any

import numpy as np
from PIL import Image

from data_prep.errors import DataError

#: Transfer syntax of a file compressed as a whole: a megabyte may become gigabytes when opened.
DEFLATED_SYNTAX = b"1.2.840.10008.1.2.1.99"


def is_dicom(data: bytes) -> bool:
    """Return whether these bytes are a DICOM file, with its header or without."""
    return data[128:132] == b"DICM" or data.startswith((b"\x02\x00", b"\x08\x00"))


def decode(data: bytes, path: str | os.PathLike[str], max_pixels: int) -> np.ndarray:
    """Decode the single frame of a DICOM file to uint8 (height, width).

    Rescale and the first look-up table or window are applied (PS3.3, C.11.2.1); without these, the
    full range of the stored bits becomes 0 to 255. MONOCHROME1 is inverted.
    """
    try:
        import pydicom

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd metadata; relevant errors are raised below
            if DEFLATED_SYNTAX in data[:4096]:
                raise ValueError("deflated as a whole, which is refused; store it plain")
            file = pydicom.dcmread(io.BytesIO(data), force=True)
            _refuse_odd_kinds(file, max_pixels)
            return _displayed(file)
    except ImportError:
        needs = "a DICOM file, which needs the package pydicom: pip install 'pydicom>=3'"
        raise DataError(f"{path}: {needs}") from None
    except Exception as error:
        # pydicom raises nearly anything on damaged input; the meaning here is always the same.
        text = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{path}: cannot be read as a DICOM image ({text})") from None


def _refuse_odd_kinds(file: Any, max_pixels: int) -> None:
    if "PixelData" not in file:
        raise ValueError("no pixels in it")
    frames = int(file.get("NumberOfFrames") or 1)
    if frames != 1:
        raise ValueError(f"{frames} frames; only single-frame images are supported")
    kind = str(file.get("PhotometricInterpretation", ""))
    if not kind.startswith("MONOCHROME") or int(file.get("SamplesPerPixel", 1)) != 1:
        raise ValueError(f"{kind or 'unknown'} pixels; MONOCHROME1 and MONOCHROME2 are read")
    if int(file.Rows) * int(file.Columns) > max_pixels:
        raise ValueError(f"{file.Columns} x {file.Rows} pixels, more than an X-ray can have")


def _stored(file: Any) -> np.ndarray:
    """Return the stored values, decompressed if an installed package can."""
    from pydicom.encaps import get_frame
    from pydicom.pixels import get_decoder
    from pydicom.uid import ExplicitVRLittleEndian, ImplicitVRLittleEndian, JPEGBaseline8Bit

    if "TransferSyntaxUID" not in file.file_meta:  # a file without its header
        implicit = file.original_encoding[0]
        syntax = ImplicitVRLittleEndian if implicit else ExplicitVRLittleEndian
        file.file_meta.TransferSyntaxUID = syntax
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
        raise ValueError(f"compressed as {syntax.name}; pip install pylibjpeg {packages}")
    values: np.ndarray = file.pixel_array
    return values


def _displayed(file: Any) -> np.ndarray:
    """Return uint8 (height, width) of a file with one grey frame."""
    from pydicom.pixels import apply_modality_lut, apply_voi_lut

    values = apply_modality_lut(_stored(file), file)
    if table := file.get("VOILUTSequence"):
        bits = int(table[0].LUTDescriptor[2])
        table[0].LUTDescriptor[2] = 16  # with 8, pydicom's index of the table would overflow
        low, high = 0.0, 2.0**bits - 1
        values = np.rint(values).astype(np.int64)
    else:
        low, high = _value_range(file)
    shown = (apply_voi_lut(values, file) - low) / (high - low)
    if not np.isfinite(shown).all():
        raise ValueError("its window or its slope is not a number")
    if low > high and file.get("WindowWidth") is None:  # a negative slope without a window
        shown = 1.0 - shown
    grey = np.rint(np.clip(shown, 0.0, 1.0) * 255.0).astype(np.uint8)
    return 255 - grey if file.PhotometricInterpretation == "MONOCHROME1" else grey


def _value_range(file: Any) -> tuple[float, float]:
    """Return the values that pydicom's window writes for the lowest and the highest input."""
    if modality := file.get("ModalityLUTSequence"):
        return 0.0, 2.0 ** int(modality[0].LUTDescriptor[2]) - 1
    bits = int(file.BitsStored)
    start = -(2.0 ** (bits - 1)) if int(file.get("PixelRepresentation", 0)) else 0.0
    slope, intercept = file.get("RescaleSlope"), file.get("RescaleIntercept")
    if slope is None or intercept is None:
        return start, start + 2.0**bits - 1
    return start * slope + intercept, (start + 2.0**bits - 1) * slope + intercept
