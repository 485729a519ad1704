"""An image copied left to right, by a few lines of C and without them."""

from __future__ import annotations

import numpy as np
import pytest

from data_prep import compiled


@pytest.fixture(params=["compiled", "NumPy"])
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "NumPy":
        monkeypatch.setattr(compiled, "mirror", None)
    elif compiled.mirror is None:
        pytest.skip("no compiler was there")


def image(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.usefixtures("how")
@pytest.mark.parametrize("planes", [1, 3, 4])
def test_every_width_is_mirrored_and_nothing_beside_it_is_written(planes: int) -> None:
    source = image(9, 60, planes)
    for width in range(1, 40):
        pixels = source[2:6, 3 : 3 + width]
        around = image(6, width + 4, planes)
        wanted = around.copy()
        wanted[1:5, 2:-2] = pixels[:, ::-1]
        compiled.copy_flipped(around[1:5, 2:-2], pixels)
        assert np.array_equal(around, wanted)


@pytest.mark.usefixtures("how")
def test_planes_apart_rows_upside_down_and_pixels_left_out_are_mirrored_too() -> None:
    source = image(12, 24, 3)
    apart = np.asfortranarray(source)
    for pixels in (apart, source[::-1], source[:, ::2], source[..., ::-1], source[:, ::-1]):
        place = np.zeros(pixels.shape, np.uint8)
        compiled.copy_flipped(place, pixels)
        assert np.array_equal(place, pixels[:, ::-1])


def test_the_compiled_function_writes_no_image_of_another_size_or_kind() -> None:
    if compiled.mirror is None:
        pytest.skip("no compiler was there")
    place = np.zeros((4, 8, 3), np.uint8)
    others = (image(5, 8, 3), image(4, 9, 3), image(4, 8, 4), image(4, 8), image(4, 8, 3) + 0.5)
    for other in others:
        assert not compiled.mirror(other, place) and not place.any()
    place.flags.writeable = False
    with pytest.raises((ValueError, BufferError)):
        compiled.mirror(image(4, 8, 3), place)
