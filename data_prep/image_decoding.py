"""Decode an image file of any supported format to grey or RGB pixels."""

from __future__ import annotations

import io
import os
import re
import warnings
from collections.abc import Mapping, Sequence

import numpy as np
from PIL import Image, ImageOps, features

from data_prep import dicom
from data_prep.errors import DataError, count_text
from data_prep.files import read_limited
from data_prep.png import decode_grey_png

try:
    import simplejpeg
except ImportError:  # an environment with only the common packages
    simplejpeg = None

#: The largest X-rays have about 12 million pixels; a header with far more is an attack or
#: damage, and decoding such a file could take all memory.
MAX_PIXELS = 64_000_000

#: The largest file of so many pixels: four channels of 16 bits, not compressed.
MAX_BYTES = 8 * MAX_PIXELS + (1 << 20)

#: The formats Pillow may open. By default Pillow tries some forty formats, passes a PostScript file
#: to the program `gs`. Every build reads these formats, except WebP and compressed TIFF.
PILLOW_FORMATS = ("PNG", "JPEG", "BMP", "PPM", "TIFF", "GIF", "WEBP")

#: Extensions treated as images in a folder without a label file.
IMAGE_EXTENSIONS = (
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".tif", ".tiff", ".gif", ".webp"),
    *(".ppm", ".pgm", ".pbm", ".pnm", ".dcm", ".dicom"),
)


#: What `decode` notes about an image.
COLOUR_LOST = "colour became grey"
TRANSPARENCY_LOST = "transparency was dropped"
TURNED = "turned upright, as the EXIF orientation says"

DARK = "less than a tenth of the levels is used"
ONE_LEVEL = "all pixels are equal"

#: EXIF data come first in a JPEG.
EXIF_BYTES = 1 << 16

#: Damage that libjpeg-turbo reports for many intact photos: a few bytes before the end marker.
HARMLESS = re.compile(r": [1-9][0-9]? extraneous bytes before marker 0xd9")


def read_grey(path: str | os.PathLike[str]) -> np.ndarray:
    """Read a PNG, JPEG, BMP, PGM, PPM, GIF, TIFF, WebP or DICOM file as grey pixels.

    Colour is converted with the ITU-R 601 weights. 16-bit values are divided by 257, transparency
    is dropped, and an image with an EXIF orientation is turned upright.

    Args:
        path: the image file.

    Returns:
        The pixels, uint8 (height, width).

    Raises:
        DataError: the file is missing, damaged, an animation, too large, or of another format.
    """
    return decode(read_bytes(path), path, 1)[..., 0]


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return an image file's bytes; `DataError` with its name if it is missing or unreadable."""
    try:
        return read_limited(path, MAX_BYTES)
    except FileNotFoundError:
        what = " (a link that leads to nothing)" if os.path.islink(path) else ""  # noqa: PTH114
        raise DataError(f"{path}: the image is missing{what}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None


def decode(
    data: bytes, path: str | os.PathLike[str], channels: int, notes: list[str] | None = None
) -> np.ndarray:
    """Decode a file's bytes, as `read_grey`, to uint8 (height, width, channels).

    What the image lost or how it was changed is added to `notes`.
    """
    notes = [] if notes is None else notes
    try:
        pixels = decode_grey_png(data, MAX_PIXELS)
        if pixels is None and data.startswith(b"\xff\xd8\xff"):
            pixels = _decode_jpeg(data)
        if pixels is None:
            is_dicom = dicom.is_dicom(data)
            pixels = dicom.decode(data, path, MAX_PIXELS) if is_dicom else _decode_any(data, notes)
    except DataError:
        raise
    except Exception as error:
        # Pillow's decoders raise OSError, SyntaxError, ValueError, struct.error, IndexError and
        # more on damaged input; the meaning here is always the same.
        reason = _error_reason(error, data)
        raise DataError(f"{path}: cannot be read as an image ({reason})") from None
    if channels == 1 and pixels.ndim == 3 and (pixels != pixels[..., :1]).any():
        notes.append(COLOUR_LOST)
    return to_channels(pixels, channels)


def note_levels(pixels: np.ndarray, notes: list[str]) -> None:
    """Add a note if the levels of an image, uint8, hardly differ."""
    levels = int(pixels.max()) - int(pixels.min())
    if levels < 26:
        notes.append(DARK if levels else ONE_LEVEL)


def note_texts(noted: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a line for each note of `decode`, with the number of its images and the first."""
    return [
        f"{count_text(images, 'image', 'images')}: {note}, the first: {min(images)}"
        for note, images in sorted(noted.items())
    ]


def to_channels(pixels: np.ndarray, channels: int) -> np.ndarray:
    """Convert uint8 (height, width) or (height, width, 3) to (height, width, channels)."""
    if pixels.ndim == 2:
        pixels = pixels[..., np.newaxis]
    if pixels.shape[2] == channels:
        return pixels
    if channels == 3:
        return np.repeat(pixels, 3, axis=2)
    return np.asarray(Image.fromarray(pixels).convert("L"))[..., np.newaxis]


def _decode_any(data: bytes, notes: list[str]) -> np.ndarray:
    """Decode less common formats to grey (height, width) or RGB (height, width, 3)."""
    if not data:
        raise ValueError("the file is empty")
    with warnings.catch_warnings():
        # Pillow warns about size and odd metadata; relevant errors are raised below.
        warnings.simplefilter("ignore")
        with Image.open(io.BytesIO(data), formats=PILLOW_FORMATS) as image:
            width, height = image.size
            if width * height > MAX_PIXELS:
                raise ValueError(f"{width} x {height} pixels, more than an X-ray can have")
            _refuse_unsupported(image)
            image.load()
            if _orientation(image) != 1:
                notes.append(TURNED)
            alpha = image.convert("RGBA").getchannel("A") if image.has_transparency_data else None
            if alpha is not None and np.asarray(alpha).min() < 255:
                notes.append(TRANSPARENCY_LOST)
            pixels = np.array(_to_grey_or_rgb(ImageOps.exif_transpose(image)))
            _refuse_unscaled(pixels, _bit_depth(image, data))
            return pixels


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation, 1 to 8; 1 is upright."""
    found = image.getexif().get(0x0112)
    return found if isinstance(found, int) and 1 <= found <= 8 else 1


def _refuse_unsupported(image: Image.Image) -> None:
    """Raise ValueError for compressed TIFF in a build without libtiff, and for several images."""
    compressed = image.format == "TIFF" and image.info.get("compression") != "raw"
    if compressed and not features.check("libtiff"):
        raise ValueError(_build_lacks("compressed TIFF", "libtiff"))
    # A camera's JPEG may have a preview behind the image (Pillow's MPO).
    if image.format != "MPO" and getattr(image, "is_animated", False):
        raise ValueError("more than one image in the file; only single images are read")


def _decode_jpeg(data: bytes) -> np.ndarray | None:
    """Decode an intact, upright, grey or RGB JPEG in half of Pillow's time, else return None.

    Raises ValueError if libjpeg-turbo finds damage, which Pillow would decode to plain areas.
    """
    if simplejpeg is None:
        return None
    try:
        height, width, kind, _ = simplejpeg.decode_jpeg_header(data)
        if kind not in ("Gray", "YCbCr", "RGB") or height * width > MAX_PIXELS:
            return None
        if b"Exif\0\0" in data[:EXIF_BYTES]:
            with Image.open(io.BytesIO(data), formats=("JPEG",)) as image:
                if _orientation(image) != 1:
                    return None
        channels, wanted = (1, "GRAY") if kind == "Gray" else (3, "RGB")
        # An odd address: at multiples of 32 libjpeg-turbo writes past the cache, and cropping the
        # image then waits for the memory.
        memory = np.empty(height * width * channels + 1, np.uint8)[1:]
        pixels: np.ndarray = simplejpeg.decode_jpeg(data, wanted, buffer=memory)
    except ValueError as error:
        if str(error).startswith("Corrupt JPEG data") and not HARMLESS.search(str(error)):
            raise
        return None  # Pillow may still read the file, or gives the reason
    return pixels[..., 0] if channels == 1 else pixels


def _to_grey_or_rgb(image: Image.Image) -> Image.Image:
    """Convert a loaded Pillow image of any mode to 8-bit grey (L) or RGB."""
    if image.mode in ("I", "I;16", "I;16B", "I;16L", "I;16N"):
        wide = np.asarray(image).astype(np.int64)
        if wide.min(initial=0) < 0 or wide.max(initial=0) > 65535:
            raise ValueError("32-bit pixels; only 8 and 16 bits are read")
        return Image.fromarray(((wide * 255 + 32767) // 65535).astype(np.uint8))
    if image.mode in ("F", "LAB", "HSV"):
        raise ValueError(f"pixels of mode {image.mode}; only grey and RGB are read")
    return image.convert("L" if image.mode in ("1", "L", "LA", "La") else "RGB")


def _bit_depth(image: Image.Image, data: bytes) -> int:
    """Return the bits per value in the file; Pillow keeps the upper eight bits in colour images."""
    if image.format == "PNG":
        return data[24]
    if image.format == "TIFF":
        bits: tuple[int, ...] = image.tag_v2.get(258, (1,))  # type: ignore[attr-defined]
        return max(bits)
    return 16 if image.mode.startswith("I") else 8


def _refuse_unscaled(pixels: np.ndarray, bits: int) -> None:
    """Raise ValueError for 16-bit files whose 10 to 14-bit detector values were not scaled."""
    if bits > 8 and pixels.max(initial=0) <= 64:  # 14 bits or fewer
        raise ValueError(
            f"{bits}-bit values, the brightest at level {pixels.max(initial=0)} of 255: scale them,"
            " so that white is 65,535"
        )


def _error_reason(error: Exception, data: bytes) -> str:
    name = type(error).__name__
    if name == "UnidentifiedImageError":
        start = data[:1024].lower()
        if start.startswith(b"version https://git-lfs"):
            return "a Git LFS pointer instead of the file: run git lfs pull"
        if b"<html" in start or b"<!doctype html" in start:
            return "an HTML page, as a server sends instead of a file: download it again"
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP" and not features.check("webp"):
            return _build_lacks("WebP", "libwebp")
        return "not a PNG, JPEG, BMP, PPM, TIFF, GIF, WebP or DICOM image, or damaged at its start"
    if name == "DecompressionBombError":
        return "more pixels than an X-ray can have"
    text = " ".join(str(error).split())
    return text or name


def _build_lacks(format: str, library: str) -> str:
    return f"{format}, but Pillow was built without {library} ({library}-dev); convert it to PNG"
