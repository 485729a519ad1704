"""Compare the crops that a run trained on with the rule of all notebooks.

Image ``i`` of an epoch (from 0) is cut and mirrored as ``default_rng([seed, epoch, i])`` draws it:
the place from the top, that from the left, and whether it is mirrored. So no row depends on chance.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from helpers.fairness.check_results import Check

CROPS = "crops in training"
RULE, NO_FLIP, FLIPPED = "the rule's", "no flip", "every crop is flipped"
OTHER_FLIPS, CENTRE = "other flips", "always the centre crop"


@dataclass(frozen=True)
class Crop:
    """A crop that was trained on: of which image, in which epoch, and what it may be."""

    image: int
    epoch: int
    """From 1."""
    digest: str
    fits: tuple[str, ...]
    """What it is: :data:`RULE`, or what a notebook may do instead; several where crops look alike,
    and nothing if it is none of these."""


def drawn(sides: Sequence[int], crop: int, seed: int, epoch: int, image: int) -> tuple[int, ...]:
    """The rule: top, left and whether it is mirrored.

    Args:
        sides: the image's height and width in pixels.
        epoch: from 0.
    """
    random = np.random.default_rng([seed, epoch, image])
    top, left = (int(random.integers(side - crop + 1)) for side in sides[:2])
    return top, left, random.random() < 0.5


def of_image(found: np.ndarray, source: np.ndarray, *, seed: int, epoch: int, image: int) -> Crop:
    """How a crop was cut from its image.

    Args:
        found: uint8 (crop, crop, planes).
        source: uint8 (height, width, planes).
        epoch: from 1.
    """
    crop = found.shape[0]
    top, left, mirrored = drawn(source.shape, crop, seed, epoch - 1, image)
    plain, flipped = (
        np.array_equal(way, source[top : top + crop, left : left + crop])
        for way in (found, found[:, ::-1])
    )
    down, right = ((side - crop) // 2 for side in source.shape[:2])
    centre = [
        source[y : y + crop, x : x + crop] for y in (down, down + 1) for x in (right, right + 1)
    ]
    fits = {
        RULE: flipped if mirrored else plain,
        NO_FLIP: plain,
        FLIPPED: flipped,
        OTHER_FLIPS: plain or flipped,
        CENTRE: any(
            np.array_equal(way, there) for way in (found, found[:, ::-1]) for there in centre
        ),
    }
    digest = hashlib.sha256(np.ascontiguousarray(found).tobytes()).hexdigest()
    return Crop(image, epoch, digest, tuple(name for name, does in fits.items() if does))


def check(crops: Sequence[Crop], misplaced: bool) -> Check:
    """Check that the crops follow the rule."""
    if not crops:
        return Check(CROPS, None, None, "no epoch was trained in this process")
    if misplaced:
        return Check(CROPS, None, None, "the images' numbers are not those of their labels")
    others = sum(RULE not in crop.fits for crop in crops)
    said = next(
        (name for name in (NO_FLIP, FLIPPED, CENTRE) if all(name in crop.fits for crop in crops)),
        "",
    )
    if not said and _same_in_each_epoch(crops):
        said = "an image has the same crop in each epoch"
    if not said:
        flips = all(OTHER_FLIPS in crop.fits for crop in crops)
        what = OTHER_FLIPS if flips else "other crops"
        said = f"{what} than seed, epoch and image give: {others} of {len(crops)}"
    fair = f"{len(crops)}, each as seed, epoch and image give it"
    return Check(CROPS, float(others), 0.0, fair, variant=f"augmentation ({said})")


def _same_in_each_epoch(crops: Sequence[Crop]) -> bool:
    """Whether each image that is there in two epochs looks the same in both; and there is one."""
    first = {crop.image: crop for crop in reversed(crops)}
    pairs = [(first[crop.image], crop) for crop in crops]
    later = [(one, crop) for one, crop in pairs if one.epoch != crop.epoch]
    return bool(later) and all(one.digest == crop.digest for one, crop in later)
