"""Crops are those that seed, epoch and image give, and what a notebook does instead is named."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from helpers.fairness import crops
from helpers.fairness.check_results import Check

SIDE, CROP, SEED, IMAGES = 20, 14, 3, 16
Draw = Callable[[int, int], np.random.Generator]
Cut = tuple[int, int, bool]


def image(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (SIDE, SIDE + 3, 3), dtype=np.uint8)


def rule(epoch: int, number: int) -> np.random.Generator:
    return np.random.default_rng([SEED, epoch, number])


def checked(
    draw: Draw = rule,
    change: Callable[[Cut], Cut] = lambda cut: cut,
    after: Callable[[np.ndarray], np.ndarray] = lambda pixels: pixels,
    source: Callable[[int], np.ndarray] = image,
    **given: Any,
) -> Check:
    """Two epochs of crops, cut as the notebooks do it."""
    found = []
    for epoch in (0, 2):
        for number in range(IMAGES):
            random, pixels = draw(epoch, number), source(number)
            top, left = (int(random.integers(side - CROP + 1)) for side in pixels.shape[:2])
            top, left, flip = change((top, left, bool(random.random() < 0.5)))
            crop = after(pixels[top : top + CROP, left : left + CROP])
            crop = crop[:, ::-1] if flip else crop
            how = {"seed": SEED, "epoch": epoch + 1, "image": number}
            found.append(crops.of_image(crop, pixels, **how))
    return crops.check(found, **({"misplaced": False} | given))


def test_the_rules_crops_pass() -> None:
    assert checked().verdict == "pass"
    assert checked(source=lambda number: np.zeros((SIDE, SIDE, 1), np.uint8)).verdict == "pass"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"change": lambda cut: (*cut[:2], False)}, "no flip"),
        ({"change": lambda cut: (*cut[:2], True)}, "every crop is flipped"),
        ({"change": lambda cut: (3, 4, cut[2])}, "always the centre crop"),
        ({"draw": lambda epoch, i: rule(0, i)}, "an image has the same crop in each epoch"),
        ({"change": lambda cut: (*cut[:2], not cut[2])}, "other flips than seed, epoch and image"),
        ({"draw": lambda epoch, i: rule(epoch, 0)}, "other crops than seed, epoch and image give"),
        ({"after": lambda pixels: pixels // 2}, "other crops than seed, epoch and image give"),
    ],
)
def test_what_is_done_instead_is_named(how: dict[str, Any], said: str) -> None:
    found = checked(**how)
    assert found.verdict == "different" and str(found.variant).startswith(f"augmentation ({said}")


def test_crops_of_images_that_are_not_known_are_not_judged() -> None:
    assert checked(draw=lambda epoch, i: rule(9, i), misplaced=True).verdict == "not checked"
    assert crops.check([], misplaced=False).verdict == "not checked"
