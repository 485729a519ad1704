"""Colour: read as Pillow reads it, kept through resizing, written as a PNG that others read."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image, features

from data_prep import DataError
from data_prep.image_decoding import decode, decode_grey
from data_prep.png import encode_png, resize_square
from data_prep.prepared_folder import check_settings, encode_image

RNG = np.random.Generator(np.random.PCG64(5))
SMOOTH = np.asarray(
    Image.fromarray(RNG.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize((80, 60))
)


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


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


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("progressive", [False, True])
def test_rgb_jpeg_is_pillows(subsampling: int, progressive: bool) -> None:
    options = {"quality": 90, "subsampling": subsampling, "progressive": progressive}
    data = saved(Image.fromarray(SMOOTH), "JPEG", **options)
    expected = np.asarray(Image.open(io.BytesIO(data)))
    found = decode(data, "x", 3)
    assert found.shape == expected.shape
    assert np.abs(found.astype(int) - expected).max() <= 2


@pytest.mark.parametrize("mode", ["CMYK", "L", "P", "RGBA", "LA", "1"])
def test_other_modes_become_rgb(mode: str) -> None:
    image = Image.fromarray(SMOOTH).convert(mode)
    kind = "JPEG" if mode == "CMYK" else "PNG"
    data = saved(image, kind)
    found = decode(data, "x", 3)
    assert found.shape == (60, 80, 3) and found.dtype == np.uint8
    again = Image.open(io.BytesIO(data)).convert("RGB")
    assert np.abs(found.astype(int) - np.asarray(again)).max() <= 1


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


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_grey_has_three_equal_planes(kind: str) -> None:
    data = saved(Image.fromarray(SMOOTH[..., 0]), kind)
    found = decode(data, "x", 3)
    assert all(np.array_equal(found[..., plane], decode_grey(data, "x")) for plane in range(3))
    one = decode(data, "x", 1)
    assert one.shape == (60, 80, 1) and np.array_equal(one[..., 0], decode_grey(data, "x"))


@pytest.mark.parametrize("width", [1, 2, 7, 64])
def test_a_written_rgb_png_is_what_others_read(width: int) -> None:
    image = RNG.integers(0, 256, (5, width, 3), dtype=np.uint8)
    data = encode_png(image)
    with Image.open(io.BytesIO(data)) as other:
        assert other.mode == "RGB" and np.array_equal(np.asarray(other), image)


def test_each_plane_is_resized_as_grey_is() -> None:
    small = resize_square(SMOOTH, 20)
    assert small.shape == (20, 20, 3)
    for plane in range(3):
        assert np.array_equal(small[..., plane], resize_square(SMOOTH[..., plane].copy(), 20))


def test_the_middle_is_taken_where_asked() -> None:
    wide = np.zeros((10, 30, 3), dtype=np.uint8)
    wide[:, 10:20] = 255
    settings = check_settings(10, "png", 90, channels=3, resize_mode="center-crop")
    small = np.asarray(Image.open(io.BytesIO(encode_image(wide, settings))))
    assert small.shape == (10, 10, 3) and (small == 255).all()
    stretched = encode_image(wide, check_settings(10, "png", 90, channels=3))
    assert (np.asarray(Image.open(io.BytesIO(stretched)))[:, 0] == 0).all()


def test_settings_that_are_wrong() -> None:
    with pytest.raises(DataError, match="channels is 2"):
        check_settings(10, "png", 90, channels=2)
    with pytest.raises(DataError, match="resize_mode 'pad' is unknown"):
        check_settings(10, "png", 90, resize_mode="pad")


def test_the_settings_of_grey_folders_are_what_they_were() -> None:
    """Or every folder that exists would be refused."""
    assert set(check_settings(10, "png", 90)) == {"size", "format", "resampling"}
