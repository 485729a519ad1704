"""Grey JPEGs are read by simplejpeg where it is there, with Pillow's pixels and its judgement."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from data_prep import DataError
from data_prep.image_decoding import decode


def jpeg(pixels: np.ndarray, **how: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", **how)
    return file.getvalue()


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
    data = jpeg(cloud(height, width, seed=seed), quality=quality, progressive=progressive)
    pixels = decode(data, "x.jpg", 1)[..., 0]
    assert pixels.shape == (height, width) and pixels.dtype == np.uint8
    assert np.array_equal(pixels, np.asarray(Image.open(io.BytesIO(data))))
    assert pixels.flags.writeable


@pytest.mark.parametrize("planes", [(), (3,)])
def test_damage_that_pillow_reads_as_one_grey_is_refused(planes: tuple[int, ...]) -> None:
    pytest.importorskip("simplejpeg")
    good = jpeg(cloud(200, 200, planes), quality=90)
    half = len(good) // 2
    for data, reason in {
        good[:half] + b"\xff\xd9" + good[half:]: "premature end of data segment",
        good[:half] + bytes(300) + good[half + 300 :]: "extraneous bytes",
    }.items():
        with pytest.raises(DataError, match=reason):
            decode(data, "x.jpg", 1)[..., 0]
    assert decode(good[:-2] + b"\0\0\xff\xd9" + b"after the end", "x.jpg", 1)[..., 0].any()
