"""The fast way through PNGs: the same pixels as Pillow's, and no verdict of its own."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import data_prep.png
from data_prep import DataError
from data_prep.image_decoding import MAX_PIXELS, decode
from data_prep.png import SIGNATURE, decode_grey_png, encode_png, resize_square

LIMIT = MAX_PIXELS


@pytest.fixture(params=["fast", "plain"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything once with isal and the compiled part, where they are, and once without."""
    if request.param == "plain":
        monkeypatch.setattr(data_prep.png, "zlib_backend", zlib)
        monkeypatch.setattr(data_prep.png, "unfilter", None)
        monkeypatch.setattr(data_prep.png, "shrink", None)
    elif data_prep.png.zlib_backend is zlib and data_prep.png.unfilter is None:
        pytest.skip("neither isal nor the compiled part is here")


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def by_hand(image: np.ndarray, filters: list[int], pieces: int = 1) -> bytes:
    """A PNG with the given filter in each row (1 Sub, 2 Up, 3 Average, 4 Paeth)."""
    height, width = image.shape
    wide = image.astype(int)
    rows = bytearray()
    for y, kind in enumerate(filters):
        row = wide[y]
        left = np.concatenate(([0], row[:-1]))
        up = wide[y - 1] if y else np.zeros(width, int)
        corner = np.concatenate(([0], up[:-1]))
        guess = left + up - corner
        gaps = np.abs(np.stack([guess - left, guess - up, guess - corner]))
        paeth = np.choose(gaps.argmin(axis=0), [left, up, corner])
        away = [np.zeros(width, int), left, up, (left + up) // 2, paeth][kind]
        rows += bytes([kind]) + ((row - away) % 256).astype(np.uint8).tobytes()
    data = zlib.compress(bytes(rows))
    cut = max(1, -(-len(data) // pieces))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = [chunk(b"IDAT", data[at : at + cut]) for at in range(0, len(data), cut)]
    return SIGNATURE + chunk(b"IHDR", header) + b"".join(parts) + chunk(b"IEND", b"")


@given(
    st.integers(1, 20),
    st.lists(st.integers(0, 4), min_size=1, max_size=20),
    st.integers(1, 4),
    st.integers(0, 2**32 - 1),
)
def test_every_filter_gives_pillows_pixels(
    width: int, filters: list[int], pieces: int, seed: int
) -> None:
    shape = (len(filters), width)
    image = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    data = by_hand(image, filters, pieces)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(data))), image)
    read = decode(data, "x", 1)[..., 0]
    assert np.array_equal(read, image)
    assert read.flags.writeable and read.flags.c_contiguous


@pytest.mark.parametrize("is_noisy", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (264, 264), (5, 1, 3), (5, 64, 3)])
def test_what_is_written_is_read_by_pillow(is_noisy: bool, shape: tuple[int, ...]) -> None:
    image = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    data = encode_png(image, is_noisy=is_noisy)
    with Image.open(io.BytesIO(data)) as read:
        assert read.mode == ("L" if image.ndim == 2 else "RGB")
        assert np.array_equal(np.asarray(read), image)
    channels = 1 if image.ndim == 2 else 3
    assert np.array_equal(decode(data, "x", channels).reshape(shape), image)


def test_a_bomb_is_not_inflated() -> None:
    # A few kilobytes that would become a gigabyte, under a header of 16 x 16.
    packer = zlib.compressobj(9)
    zeros = bytes(1 << 20)
    data = b"".join(packer.compress(zeros) for _ in range(64)) + packer.flush()
    header = struct.pack(">IIBBBBB", 16, 16, 8, 0, 0, 0, 0)
    bomb = SIGNATURE + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    assert decode_grey_png(bomb, LIMIT) is None
    huge = SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", 10**5, 10**5, 8, 0, 0, 0, 0))
    with pytest.raises(DataError, match="than an X-ray can have"):
        decode(huge + chunk(b"IDAT", data) + chunk(b"IEND", b""), "x", 1)[..., 0]


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 200), st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_resizing_is_pillows_within_one_level(
    height: int, width: int, size: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 256, (height, width), dtype=np.uint8)
    if seed % 3 == 0:
        image = np.where(image > 127, 255, 0).astype(np.uint8)
    pillows = Image.fromarray(image).resize((size, size), Image.Resampling.BILINEAR)
    ours = resize_square(image, size)
    assert ours.shape == (size, size) and ours.dtype == np.uint8
    assert np.abs(ours.astype(int) - np.asarray(pillows, dtype=int)).max() <= 1
    flat = np.full((height, width), seed % 256, dtype=np.uint8)
    assert (resize_square(flat, size) == seed % 256).all()
