"""Opening an image file of whatever kind as one grey plane."""

from __future__ import annotations

import io
import os
import warnings

import numpy as np
from PIL import Image

from data_prep.errors import DataError
from data_prep.png import decode_plain

try:
    import simplejpeg
except ImportError:  # an environment with nothing but the common packages
    simplejpeg = None

#: The largest X-rays have about 12 million pixels; a header that claims far more is an attack or
#: damage, and decoding it could take all memory.
MAX_PIXELS = 64_000_000


def read_grey(path: str | os.PathLike[str]) -> np.ndarray:
    """Read an image file as uint8 of shape (height, width).

    Grey comes as it is, colour by the ITU-R 601 weights (three equal planes give their value
    exactly), palettes through their colours, transparency is dropped (it says nothing in an
    X-ray), 16-bit grey is scaled by 255/65535.

    Raises `DataError`, naming the file, if it is missing, empty, truncated, damaged, not an image
    or larger than `MAX_PIXELS`.
    """
    return decode_grey(read_bytes(path), path)


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """An image file as it stands; `DataError`, naming it, if it is missing or cannot be read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib takes as long as the reading
            return file.read()
    except FileNotFoundError:
        raise DataError(f"{path}: the image is missing") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None


def decode_grey(data: bytes, path: str | os.PathLike[str]) -> np.ndarray:
    """As `read_grey`, of a file's bytes; `path` is what error messages name."""
    pixels = decode_plain(data, MAX_PIXELS)
    if pixels is None and data.startswith(b"\xff\xd8\xff"):
        pixels = _decode_grey_jpeg(data)
    if pixels is not None:
        return pixels
    if not data:
        raise DataError(f"{path}: cannot be read as an image (the file is empty)")
    try:
        with warnings.catch_warnings():
            # Pillow's own size warning: the line below says it better.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(data))
        with image:
            width, height = image.size
            if width * height > MAX_PIXELS:
                raise DataError(f"{path}: {width} x {height} pixels, more than an X-ray can have")
            image.load()
            return np.array(to_grey(image))
    except DataError:
        raise
    except Exception as error:
        # Pillow's decoders raise OSError, SyntaxError, ValueError, struct.error, IndexError and
        # more on damaged input; to us they all mean the same.
        raise DataError(f"{path}: cannot be read as an image ({_reason(error)})") from None


def _decode_grey_jpeg(data: bytes) -> np.ndarray | None:
    """The pixels of an intact grey JPEG, else None.

    What resized X-rays are. Without Pillow's reading of every segment in Python, and with the
    libjpeg-turbo that simplejpeg brings, this takes half the time for the same pixels.
    """
    if simplejpeg is None:
        return None
    try:
        height, width, kind, _ = simplejpeg.decode_jpeg_header(data)
        if kind != "Gray" or height * width > MAX_PIXELS:
            return None
        pixels: np.ndarray = simplejpeg.decode_jpeg(data, "GRAY")[..., 0]
        return pixels
    except ValueError:  # damaged, though perhaps mendable: Pillow decides, and finds the words
        return None


def to_grey(image: Image.Image) -> Image.Image:
    """A loaded Pillow image of any mode as mode L (8-bit grey), see `read_grey`."""
    if image.mode == "L":
        return image.copy() if image.readonly else image
    if image.mode in ("I", "I;16", "I;16B", "I;16L", "I;16N"):
        wide = np.asarray(image).astype(np.int64)
        if wide.min(initial=0) < 0 or wide.max(initial=0) > 65535:
            raise ValueError("32-bit pixels; only 8 and 16 bits are read")
        return Image.fromarray(((wide * 255 + 32767) // 65535).astype(np.uint8))
    if image.mode in ("F", "LAB", "HSV"):
        raise ValueError(f"pixels of mode {image.mode}; only grey and RGB are read")
    if image.mode in ("P", "PA", "RGBA", "RGBX", "CMYK", "YCbCr"):
        image = image.convert("RGB")
    return image.convert("L")


def _reason(error: Exception) -> str:
    name = type(error).__name__
    if name == "UnidentifiedImageError":
        return "not an image, or its first bytes are damaged"
    if name == "DecompressionBombError":
        return "more pixels than an X-ray can have"
    text = " ".join(str(error).split())
    return text or name
