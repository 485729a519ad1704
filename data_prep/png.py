"""Decode, resize and encode PNG files, mostly grey, faster than a general library.

Inflating takes most of the time; ISA-L (package `isal`) needs half the time of zlib or less.
`_grey.c` undoes the rows' filters; without it, Pillow decodes all files, to the same pixels.
"""

from __future__ import annotations

import contextlib
import importlib
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

zlib_backend: Any = zlib
try:
    from isal import isal_zlib
except ImportError:  # an environment with only the common packages
    pass
else:
    zlib_backend = isal_zlib

_grey: Any = None
with contextlib.suppress(ImportError):  # there was no C compiler
    _grey = importlib.import_module("data_prep._grey")
unfilter: Callable[[bytes, np.ndarray, int, int], None] | None = getattr(_grey, "unfilter", None)
shrink: Callable[[np.ndarray, np.ndarray, int, int, int], bool] | None
shrink = getattr(_grey, "shrink", None)

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def decode_grey_png(data: bytes, max_pixels: int) -> np.ndarray | None:
    """Decode an intact 8-bit grey PNG to uint8 (height, width), else return None."""
    try:
        return _decode(data, max_pixels)
    except (struct.error, zlib.error, zlib_backend.error, ValueError):
        return None


def _decode(data: bytes, max_pixels: int) -> np.ndarray:
    if unfilter is None or data[:8] != SIGNATURE or data[12:16] != b"IHDR":
        raise ValueError
    width, height, depth, colour, *others = struct.unpack_from(">IIBBBBB", data, 16)
    if (depth, colour, *others) != (8, 0, 0, 0, 0) or not 0 < width * height <= max_pixels:
        raise ValueError
    size = height * (width + 1)
    # One byte more than the maximum: an endless stream is not followed.
    inflater = zlib_backend.decompressobj()
    raw = inflater.decompress(_image_data(data), size + 1)
    if len(raw) != size or not inflater.eof:
        raise ValueError
    pixels = np.empty((height, width), dtype=np.uint8)
    unfilter(raw, pixels, width, height)
    return pixels


def _image_data(data: bytes) -> bytes:
    parts, at = [], 8
    while True:
        length, kind = struct.unpack_from(">I4s", data, at)
        end = at + 8 + length
        (check,) = struct.unpack_from(">I", data, end)
        if zlib_backend.crc32(memoryview(data)[at + 4 : end]) != check:
            raise ValueError
        if kind == b"IDAT":
            parts.append(data[at + 8 : end])
        elif kind == b"IEND":
            return b"".join(parts)
        elif kind in (b"tRNS", b"acTL", b"eXIf"):
            raise ValueError
        at = end + 4


def resize_square(image: np.ndarray, size: int) -> np.ndarray:
    """Resize a uint8 array, (height, width) or (height, width, 3), to (size, size), antialiased."""
    if image.ndim == 3:
        planes = [resize_square(image[..., at], size) for at in range(image.shape[2])]
        return np.stack(planes, axis=2)
    height, width = image.shape
    if (height, width) == (size, size):
        return image
    if shrink is not None:
        small = np.empty((size, size), dtype=np.uint8)
        if shrink(np.ascontiguousarray(image), small, width, height, size):
            return small
    resized = Image.fromarray(image).resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(resized)


def encode_png(image: np.ndarray, *, is_noisy: bool = False) -> bytes:
    """Encode a uint8 array, (height, width) or (height, width, 3), as PNG, always the same bytes.

    zlib searches for runs, but in a noisy image for nothing. ISA-L's bytes may differ.
    """
    strategy = zlib.Z_HUFFMAN_ONLY if is_noisy else zlib.Z_RLE
    packer = zlib.compressobj(1, zlib.DEFLATED, 15, 9, strategy)
    return _assemble(image, packer.compress(_sub_filtered(image)) + packer.flush())


def _sub_filtered(image: np.ndarray) -> bytes:
    """Return rows of differences to the left neighbour, each after its filter number (1, Sub)."""
    height, width, *planes = image.shape
    rows = np.empty((height, 1 + image[0].size), dtype=np.uint8)
    rows[:, 0] = 1
    pixels = rows[:, 1:].reshape(height, width, *planes)  # another view of the same bytes
    pixels[:, 0] = image[:, 0]
    np.subtract(image[:, 1:], image[:, :-1], out=pixels[:, 1:])
    return rows.tobytes()


def _assemble(image: np.ndarray, data: bytes) -> bytes:
    """Assemble the PNG file of a grey or RGB image from its filtered and compressed rows."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        check = zlib_backend.crc32(body, zlib_backend.crc32(kind))
        return b"".join((struct.pack(">I", len(body)), kind, body, struct.pack(">I", check)))

    height, width = image.shape[:2]
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if image.ndim == 2 else 2, 0, 0, 0)
    return b"".join((SIGNATURE, chunk(b"IHDR", header), chunk(b"IDAT", data), chunk(b"IEND", b"")))
