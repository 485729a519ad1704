"""Test that the crops that a run trained on are random.

Each crop is looked for in the image that it was cut from, pixel by pixel, as it is and mirrored. Of
a random crop every place is as likely as any other, in both directions, and one in two is mirrored.
Each of the tests below fails with a chance of at most ``FALSE_ALARM`` although that holds, and a
run has at most ``TESTS`` of them: together at most one in a million.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from scipy import stats

from helpers.fairness.check_results import Check

TESTS = 22
FALSE_ALARM = 1e-6 / TESTS

FOUND = "crops found in their images"
PLACES = "places of the crops"
MIRRORED = "mirrored crops"
DRAWS = "crops drawn anew for each image and epoch"
FEWEST = 100
"""With fewer crops the tests would notice nothing."""

SAMPLED = 64
"""Pixels of a crop that are compared at every place before the whole crop is at a few."""
MOST_PLACES = 2
"""Places at which a crop is compared whole: a black one is at every place of a black image."""


@dataclass(frozen=True)
class Crop:
    """A crop that was trained on: where it was in its epoch, and where it is in its image.

    ``places`` are those at which it is found, ``(top, left, mirrored)``, two at most; ``tops`` and
    ``lefts`` count the places that there are. ``distinct`` says whether all crops of its image look
    different.
    """

    process: int
    epoch: int
    place: int
    """Which of its process's images in this epoch it was."""
    image: int
    tops: int
    lefts: int
    places: tuple[tuple[int, int, bool], ...]
    distinct: bool = True

    @property
    def only(self) -> tuple[int, int, bool] | None:
        """Where it is, if that is certain of every crop of its image.

        A dark image with a mark in one corner shows only of crops with the mark where they are:
        those are not at even places.
        """
        return self.places[0] if self.distinct and len(self.places) == 1 else None


def of_image(
    crop: np.ndarray, source: np.ndarray, *, process: int, epoch: int, place: int, image: int
) -> Crop:
    """A crop, uint8 (h, w, planes), as it is found in its image, uint8 (H, W, planes)."""
    sides = crop.shape[:2]
    tops, lefts = (there - side + 1 for there, side in zip(source.shape, sides, strict=False))
    found, differ = find(crop, source), distinct(source, *sides)
    return Crop(process, epoch, place, image, tops, lefts, found, differ)


def find(crop: np.ndarray, image: np.ndarray) -> tuple[tuple[int, int, bool], ...]:
    """Places of ``image`` at which ``crop`` is, each ``(top, left, mirrored)``; two at most.

    Args:
        crop: uint8 (h, w, planes).
        image: uint8 (H, W, planes), at least as large.
    """
    found = (
        (top, left, mirrored)
        for mirrored, looked_for in ((False, crop), (True, crop[:, ::-1]))
        for top, left in _places(looked_for, image)
    )
    return tuple(islice(found, MOST_PLACES))


def distinct(image: np.ndarray, height: int, width: int) -> bool:
    """Whether all crops of that size, as they are and mirrored, look different.

    Only ``SAMPLED`` of their pixels are compared, so a small difference can be missed.
    """
    if image.shape[0] < height or image.shape[1] < width:
        return False
    both = [_marks(image, height, width, mirrored=mirrored) for mirrored in (False, True)]
    marks = np.concatenate([one.ravel() for one in both])
    return len(np.unique(marks)) == len(marks)


def _places(crop: np.ndarray, image: np.ndarray) -> Iterator[tuple[int, int]]:
    height, width, planes = crop.shape
    if image.shape[0] < height or image.shape[1] < width or planes != image.shape[2]:
        return
    fits = _marks(image, height, width) == _marks(crop, height, width)[0, 0]
    for top, left in np.argwhere(fits).tolist():
        if np.array_equal(image[top : top + height, left : left + width], crop):
            yield top, left


def _marks(image: np.ndarray, height: int, width: int, *, mirrored: bool = False) -> np.ndarray:
    """A number for each place's crop, uint64 (tops, lefts); the same one for crops that are alike.

    It is the sum of some pixels, each times a random number.
    """
    tops, lefts = image.shape[0] - height + 1, image.shape[1] - width + 1
    random = np.random.default_rng(0)
    sampled = random.integers((height, width, image.shape[2]), size=(SAMPLED, 3)).tolist()
    times = random.integers(2**64, size=SAMPLED, dtype=np.uint64) | np.uint64(1)
    found = np.zeros((tops, lefts), np.uint64)
    for (down, right, plane), factor in zip(sampled, times, strict=True):
        across = width - 1 - right if mirrored else right
        part = image[down : down + tops, across : across + lefts, plane]
        found += factor * part.astype(np.uint64)  # NumPy 1 would keep it as small as it is
    return found


def checks(crops: Sequence[Crop], batch: int) -> list[Check]:
    """Whether crops are those of the recipe: cut at random places, half of them mirrored.

    Args:
        batch: images per device and step.
    """
    if not crops:
        why = "no epoch was trained in this process"
        return [Check(name, None, None, why) for name in (FOUND, PLACES, MIRRORED, DRAWS)]
    lost = sum(not crop.places for crop in crops)
    share = lost / len(crops)
    said = f"{len(crops) - lost} of {len(crops)}, to the pixel"
    why = f"{lost} of {len(crops)} crops are not in their images: something else was done to them"
    found = Check(FOUND, share, 0.0, said, variant=f"augmentation ({why})")
    certain = [crop for crop in crops if crop.only is not None]
    if len(certain) < FEWEST:
        why = f"the place of {len(certain)} crops is certain, too few to test"
        return [found, *(Check(name, None, None, why) for name in (PLACES, MIRRORED, DRAWS))]
    return [found, _uniform(certain), _half_mirrored(certain), _independent(certain, batch)]


def _uniform(crops: Sequence[Crop]) -> Check:
    """Kolmogorov and Smirnov's distance from even places, in the direction where it is larger.

    The bound is that of Dvoretzky, Kiefer and Wolfowitz, which holds for discrete places too.
    The first and the last place have to be there, where so many crops would hardly miss them.
    """
    n = len(crops)
    limit = math.sqrt(math.log(2 / FALSE_ALARM) / (2 * n))
    worst, said = 0.0, ""
    sides = {
        "from the top": np.array([(crop.only[0], crop.tops) for crop in crops if crop.only]),
        "from the left": np.array([(crop.only[1], crop.lefts) for crop in crops if crop.only]),
    }
    for side, found in sides.items():
        place, count = found.T
        distance = _distance(place, count)
        for end, at_end in {"first": place == 0, "last": place == count - 1}.items():
            missed = float(np.log1p(-1 / np.maximum(count, 1 + 1e-9)).sum())
            if not at_end.any() and missed < math.log(FALSE_ALARM):
                distance, said = 1.0, said or f"none at the {end} place {side}"
        if distance > limit and distance > worst:
            said = _constant(place, count, side) or said or _where(place, count, side)
        worst = max(worst, distance)
    fair = f"{n} crops; even in both directions"
    return Check(PLACES, worst, limit, said or fair, variant=f"augmentation ({said})")


def _distance(place: np.ndarray, count: np.ndarray) -> float:
    """The largest distance between the shares of crops up to a place and of places up to it.

    Images may differ in size: each place is spread over its part of [0, 1].
    """
    low, high = place / count, (place + 1) / count
    worst = 0.0
    for level in np.unique(np.concatenate([low, high])):
        share = np.clip((level - low) / (high - low), 0, 1).mean()
        worst = max(worst, abs(float(share) - float(level)))
    return worst


def _constant(place: np.ndarray, count: np.ndarray, side: str) -> str:
    """That all crops are at one place, if they are."""
    if np.ptp(place) or np.ptp(count):
        return ""
    middle = round((count[0] - 1) / 2) == place[0]
    return f"always the {'centre' if middle else 'same'} crop: {place[0]} px {side}"


def _where(place: np.ndarray, count: np.ndarray, side: str) -> str:
    mean = float((place / np.maximum(count - 1, 1)).mean())
    return f"crops are not at even places {side}: at {100 * mean:.0f} % of the way on average"


def _half_mirrored(crops: Sequence[Crop]) -> Check:
    mirrored = sum(crop.only[2] for crop in crops if crop.only)
    share, n = mirrored / len(crops), len(crops)
    limit = 0.5 - float(stats.binom.ppf(FALSE_ALARM / 2, n, 0.5)) / n
    variant = f"{100 * share:.0f} % of the crops are mirrored"
    variant = {0.0: "no flip", 1.0: "every crop is flipped"}.get(share, variant)
    said = f"{mirrored} of {n}"
    return Check(MIRRORED, abs(share - 0.5), limit, said, variant=f"augmentation ({variant})")


def _independent(crops: Sequence[Crop], batch: int) -> Check:
    """Whether a draw predicts another: in the same crop, the next crop, or an earlier epoch.

    The difference is how many standard deviations the worst of the counts is too high or too low.
    """
    chances = []
    for one, other in (("top", "left"), ("top", "flip"), ("left", "flip")):
        sides = [(_half(crop, one), _half(crop, other)) for crop in crops]
        chances.append((_halves(sides)[0], f"{one} predicts {other}"))
    for pairs, said in (
        (_again(crops), "an image has the same {} in each epoch"),
        (_after(crops, batch), "{}s repeat from batch to batch"),
        (_after(crops, 1), "{}s repeat within a batch"),
    ):
        if pairs:
            chances.append((_chance(pairs), said.format("crop")))
        for what in ("top", "left", "flip"):
            chance, alike = _halves([(_half(one, what), _half(two, what)) for one, two in pairs])
            other = f"one {what} predicts the next one"
            chances.append((chance, said.format(what) if alike else other))
    chance, said = min(chances, key=lambda each: each[0])
    worst = float(stats.norm.isf(max(chance, 1e-300) / 2))
    limit = float(stats.norm.isf(FALSE_ALARM / 2))
    return Check(DRAWS, worst, limit, f"{len(crops)} crops", variant=f"augmentation ({said})")


def _half(crop: Crop, what: str) -> bool | None:
    """In which half of the places it is, or whether it is mirrored; None in the middle."""
    assert crop.only is not None
    top, left, mirrored = crop.only
    if what == "flip":
        return mirrored
    place, count = {"top": (top, crop.tops), "left": (left, crop.lefts)}[what]
    return None if 2 * place + 1 == count else 2 * place + 1 < count


def _halves(pairs: Iterable[tuple[bool | None, bool | None]]) -> tuple[float, bool]:
    """How likely so many pairs are alike, or so few, by chance; and whether most are alike.

    If one half is the more frequent of both, more pairs are alike; other rows report that.
    """
    known = [(one, other) for one, other in pairs if one is not None and other is not None]
    if not known:
        return 1.0, True
    alike = sum(one == other for one, other in known)
    chance = float(stats.binomtest(alike, len(known), 0.5).pvalue)
    if chance < FALSE_ALARM:
        counts = [[known.count((one, two)) for two in (True, False)] for one in (True, False)]
        chance = max(chance, float(stats.fisher_exact(counts)[1]))
    return chance, 2 * alike > len(known)


def _chance(pairs: Sequence[tuple[Crop, Crop]]) -> float:
    """How likely so many pairs of crops are alike, if each was drawn at random."""
    alike = sum(one.only == other.only for one, other in pairs)
    each = float(np.mean([1 / (2 * one.tops * one.lefts) for one, _ in pairs]))
    return float(stats.binom.sf(alike - 1, len(pairs), each))


def _again(crops: Sequence[Crop]) -> list[tuple[Crop, Crop]]:
    """The same image in two epochs."""
    first: dict[int, Crop] = {}
    pairs = []
    for crop in crops:
        other = first.setdefault(crop.image, crop)
        if other.epoch != crop.epoch:
            pairs.append((other, crop))
    return pairs


def _after(crops: Sequence[Crop], later: int) -> list[tuple[Crop, Crop]]:
    """A crop, and the one that came so many places later in its process's epoch."""
    at = {(crop.process, crop.epoch, crop.place): crop for crop in crops}
    found = ((crop, at.get((crop.process, crop.epoch, crop.place + later))) for crop in crops)
    return [(one, other) for one, other in found if other is not None]
