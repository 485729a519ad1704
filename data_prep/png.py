"""Decode, resize and encode PNG files, mostly grey, faster than a general library.

An 8-bit grey PNG is a zlib stream of rows, each stored unchanged or as differences to the left
or upper neighbours (the row's "filter", see the PNG specification, section 9). Inflating
takes most of the time; ISA-L (package `isal`) needs half the time of zlib or less. Compiled code
(`_grey.c`) undoes the filters. Without compiled code, NumPy undoes None, Sub and Up; rows with
Average and Paeth, which cannot be computed at once, are passed to Pillow as an uncompressed PNG.

Without `isal` or a compiler the pixels are the same.
"""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image

from data_prep.compiled import shrink, unfilter

zlib_backend: Any = zlib
try:
    from isal import isal_zlib
except ImportError:  # an environment with only the common packages
    pass
else:
    zlib_backend = isal_zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"


class NotGreyPngError(Exception):
    """The file is not an intact 8-bit grey PNG; Pillow decodes it instead."""


def decode_grey_png(data: bytes, max_pixels: int) -> np.ndarray | None:
    """Decode an intact 8-bit grey PNG to uint8 (height, width), else return None.

    The function checks all checksums, the number of bytes and the end of the file. A file with the
    result None may still be a valid image of another kind.
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
    # One byte more than the maximum: an endless stream is not followed.
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
    """Undo the row filters as the compiled `unfilter` does, with NumPy and Pillow."""
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
    """Resize a uint8 array, (height, width) or (height, width, 3), to (size, size), antialiased.

    The sampling is bilinear. The pixels are Pillow's, or within one level with the compiled code.
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
    """Encode a uint8 array, (height, width) or (height, width, 3), as PNG, always the same bytes.

    zlib searches for runs only. ISA-L would take less than half the time, but in one process of a
    hundred its bytes differ for the same pixels.
    """
    return _assemble(image, _compress(image, zlib.Z_RLE))


def encode_noisy_png(image: np.ndarray) -> bytes:
    """Encode as `encode_png` does, without a search for repeats, which a noisy image has not."""
    return _assemble(image, _compress(image, zlib.Z_HUFFMAN_ONLY))


def _compress(image: np.ndarray, strategy: int) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, 15, 9, strategy)
    return packer.compress(sub_filtered(image)) + packer.flush()


def sub_filtered(image: np.ndarray) -> bytes:
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
