"""Colour and JPEG: read as Pillow reads them, kept through resizing, written as others read."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, features

from data_prep import DataError
from data_prep.image_decoding import decode
from data_prep.prepared_folder import check_settings, encode_image

RNG = np.random.Generator(np.random.PCG64(5))
SMOOTH = np.asarray(
    Image.fromarray(RNG.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize((80, 60))
)


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


HOW = {"size": 10, "format": "png", "quality": 90, "channels": 3}
LIBRARIES = {"TIFF": "libtiff", "WEBP": "webp"}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("PNG", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("TIFF", {"compression": "tiff_adobe_deflate"}),
        ("TIFF", {"compression": "packbits"}),
        ("WEBP", {"lossless": True}),
    ],
)
def test_rgb_is_read_exactly(kind: str, options: dict[str, Any]) -> None:
    if (library := LIBRARIES.get(kind)) and not features.check(library):
        pytest.skip(f"Pillow was built without {library}")
    assert np.array_equal(decode(saved(Image.fromarray(SMOOTH), kind, **options), "x", 3), SMOOTH)


def test_gif_is_read_and_only_a_single_image() -> None:
    image = Image.fromarray(SMOOTH).convert("P")
    found = decode(saved(image, "GIF"), "x", 3)
    assert np.array_equal(found, np.asarray(image.convert("RGB")))
    for kind in ("GIF", "TIFF", *(["WEBP"] if features.check("webp") else [])):
        several = saved(image, kind, save_all=True, append_images=[image.rotate(180)])
        with pytest.raises(DataError, match=r"x: .*more than one image"):
            decode(several, "x", 3)


@pytest.mark.skipif(bool(features.check("webp")), reason="Pillow was built with libwebp")
def test_without_libwebp_the_line_names_it() -> None:
    webp = b"RIFF\x1a\0\0\0WEBPVP8L\x0e\0\0\0\x2f\0\0\0\x10\x07\x10\x11\x11\x88\x88\xfe\x07\0"
    with pytest.raises(DataError, match=r"x: .*WebP.*without libwebp.*libwebp-dev.*convert it"):
        decode(webp, "x", 3)


def test_the_middle_is_taken_where_asked() -> None:
    wide = np.zeros((10, 30, 3), dtype=np.uint8)
    wide[:, 10:20] = 255
    settings = check_settings(**HOW, resize_mode="center-crop")
    small = np.asarray(Image.open(io.BytesIO(encode_image(wide, settings))))
    assert small.shape == (10, 10, 3) and (small == 255).all()
    stretched = encode_image(wide, check_settings(**HOW))
    assert (np.asarray(Image.open(io.BytesIO(stretched)))[:, 0] == 0).all()


def cloud(height: int, width: int, planes: tuple[int, ...] = (), seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (height, width, *planes), dtype=np.uint8)


@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 100),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=60)
def test_grey_gives_pillows_pixels(
    height: int, width: int, quality: int, progressive: bool, seed: int
) -> None:
    how = {"quality": quality, "progressive": progressive}
    data = saved(Image.fromarray(cloud(height, width, seed=seed)), "JPEG", **how)
    pixels = decode(data, "x.jpg", 1)[..., 0]
    assert pixels.shape == (height, width) and pixels.dtype == np.uint8
    assert np.array_equal(pixels, np.asarray(Image.open(io.BytesIO(data))))
    assert pixels.flags.writeable


@pytest.mark.parametrize("planes", [(), (3,)])
def test_damage_that_pillow_reads_as_one_grey_is_refused(planes: tuple[int, ...]) -> None:
    pytest.importorskip("simplejpeg")
    good = saved(Image.fromarray(cloud(200, 200, planes)), "JPEG", quality=90)
    half = len(good) // 2
    for data, reason in {
        good[:half] + b"\xff\xd9" + good[half:]: "premature end of data segment",
        good[:half] + bytes(300) + good[half + 300 :]: "extraneous bytes",
    }.items():
        with pytest.raises(DataError, match=reason):
            decode(data, "x.jpg", 1)[..., 0]
    assert decode(good[:-2] + b"\0\0\xff\xd9" + b"after the end", "x.jpg", 1)[..., 0].any()
