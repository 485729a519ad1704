"""PNGs, grey above all, read, made smaller and written faster than a general library can.

An 8-bit grey PNG is a zlib stream of rows, each stored as it is or as differences to its left or
upper neighbours (the row's "filter", see the PNG specification, section 9). Most of the time of
reading one goes into inflating; ISA-L (package `isal`) does that in half the time of zlib or less.
The filters are undone by a few lines of C (`_grey.c`). Where those could not be compiled, NumPy
does None, Sub and Up; for Average and Paeth, whose rows cannot be computed at once, the inflated
rows are handed to Pillow in a PNG without compression.

Without `isal` or a compiler everything works as well, with the same pixels.
"""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image

from data_prep.c_extension import shrink, unfilter

zlib_backend: Any = zlib
try:
    from isal import isal_zlib
except ImportError:  # an environment with nothing but the common packages
    pass
else:
    zlib_backend = isal_zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"


class NotGreyPngError(Exception):
    """Not an intact 8-bit grey PNG; Pillow shall look at it."""


def decode_grey_png(data: bytes, max_pixels: int) -> np.ndarray | None:
    """The pixels, uint8 (height, width), of an intact plain 8-bit grey PNG, else None.

    Everything the format lets one check is checked: all checksums, the number of bytes, the end.
    What is None may still be a good image of another kind.
    """
    try:
        return _decode(data, max_pixels)
    except (NotGreyPngError, struct.error, zlib.error, zlib_backend.error, ValueError):
        return None


def _decode(data: bytes, max_pixels: int) -> np.ndarray:
    if data[:8] != SIGNATURE or data[12:16] != b"IHDR":
        raise NotGreyPngError
    width, height, depth, colour, *others = struct.unpack_from(">IIBBBBB", data, 16)
    if (depth, colour, *others) != (8, 0, 0, 0, 0) or not 0 < width * height <= max_pixels:
        raise NotGreyPngError
    size = height * (width + 1)
    # One byte more than there may be: a stream that goes on without end is not followed.
    inflater = zlib_backend.decompressobj()
    raw = inflater.decompress(_image_data(data), size + 1)
    if len(raw) != size or not inflater.eof:
        raise NotGreyPngError
    if unfilter is None:
        return _unfilter(raw, width, height)
    pixels = np.empty((height, width), dtype=np.uint8)
    unfilter(raw, pixels, width, height)
    return pixels


def _unfilter(raw: bytes, width: int, height: int) -> np.ndarray:
    """What the compiled `unfilter` does, with what NumPy and Pillow have."""
    rows = np.frombuffer(raw, dtype=np.uint8).reshape(height, width + 1)
    filters = rows[:, 0]
    if filters.max() > 2:
        return _through_pillow(raw, width, height)
    pixels = rows[:, 1:].copy()
    sub = filters == 1
    if sub.any():
        pixels[sub] = np.cumsum(pixels[sub], axis=1, dtype=np.uint8)
    # Runs of Up rows add up downwards, from the row above the run.
    edges = np.flatnonzero(np.diff(np.concatenate(([0], (filters == 2).view(np.int8), [0]))))
    for start, stop in zip(edges[::2], edges[1::2], strict=True):
        first = max(start - 1, 0)
        pixels[first:stop] = np.cumsum(pixels[first:stop], axis=0, dtype=np.uint8)
    return pixels


def _image_data(data: bytes) -> bytes:
    """The joined IDAT chunks; every chunk's checksum is looked at."""
    parts, at = [], 8
    while True:
        length, kind = struct.unpack_from(">I4s", data, at)
        end = at + 8 + length
        (check,) = struct.unpack_from(">I", data, end)
        if zlib_backend.crc32(memoryview(data)[at + 4 : end]) != check:
            raise NotGreyPngError
        if kind == b"IDAT":
            parts.append(data[at + 8 : end])
        elif kind == b"IEND":
            return b"".join(parts)
        elif kind in (b"tRNS", b"acTL"):
            raise NotGreyPngError
        at = end + 4


def _through_pillow(raw: bytes, width: int, height: int) -> np.ndarray:
    blocks = [b"\x78\x01"]
    for start in range(0, len(raw), 65535):
        part = raw[start : start + 65535]
        last = start + 65535 >= len(raw)
        blocks += [struct.pack("<BHH", last, len(part), len(part) ^ 0xFFFF), part]
    blocks.append(struct.pack(">I", zlib_backend.adler32(raw)))
    wrapped = _assemble(np.empty((height, width), dtype=np.uint8), b"".join(blocks))
    with Image.open(io.BytesIO(wrapped)) as image:
        return np.array(image)


def resize_square(image: np.ndarray, size: int) -> np.ndarray:
    """A uint8 (height, width) array resized to (size, size), antialiased bilinear; each plane of
    (height, width, 3) by itself.

    Pillow's pixels, or within one level of them where the compiled part does it.
    """
    if image.ndim == 3:
        return np.stack(
            [resize_square(image[..., at], size) for at in range(image.shape[2])], axis=2
        )
    height, width = image.shape
    if (height, width) == (size, size):
        return image
    if shrink is not None:
        small = np.empty((size, size), dtype=np.uint8)
        if shrink(np.ascontiguousarray(image), small, width, height, size):
            return small
    resized = Image.fromarray(image).resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(resized)


def encode_png(image: np.ndarray) -> bytes:
    """A uint8 array, (height, width) or (height, width, 3), as a PNG file, always the same bytes.

    Through zlib, which looks for runs only. ISA-L would take less than half the time, but in one
    process of a hundred it finds other bytes for the same pixels.
    """
    return _assemble(image, _compress(image, zlib.Z_RLE))


def encode_noisy_png(image: np.ndarray) -> bytes:
    """As `encode_png`, without looking for repeats, of which a grainy picture has none."""
    return _assemble(image, _compress(image, zlib.Z_HUFFMAN_ONLY))


def _compress(image: np.ndarray, strategy: int) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, 15, 9, strategy)
    return packer.compress(sub_filtered(image)) + packer.flush()


def sub_filtered(image: np.ndarray) -> bytes:
    """Rows of differences to the left neighbour, each behind its filter number (1, Sub)."""
    height, width, *planes = image.shape
    rows = np.empty((height, 1 + image[0].size), dtype=np.uint8)
    rows[:, 0] = 1
    pixels = rows[:, 1:].reshape(height, width, *planes)  # another view of the same bytes
    pixels[:, 0] = image[:, 0]
    np.subtract(image[:, 1:], image[:, :-1], out=pixels[:, 1:])
    return rows.tobytes()


def _assemble(image: np.ndarray, data: bytes) -> bytes:
    """The file of an image, grey or RGB, whose filtered and compressed rows these are."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        check = zlib_backend.crc32(body, zlib_backend.crc32(kind))
        return b"".join((struct.pack(">I", len(body)), kind, body, struct.pack(">I", check)))

    height, width = image.shape[:2]
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if image.ndim == 2 else 2, 0, 0, 0)
    return b"".join((SIGNATURE, chunk(b"IHDR", header), chunk(b"IDAT", data), chunk(b"IEND", b"")))
