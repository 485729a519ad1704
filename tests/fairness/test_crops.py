"""Crops are found to the pixel, random ones pass, and what is not random is named."""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from helpers.fairness import crops
from helpers.fairness.crops import DRAWS, FOUND, MIRRORED, PLACES, Crop

SIDE, CROP, BATCH = 20, 14, 16
PLACES_THERE = SIDE - CROP + 1
Draw = Callable[[np.random.Generator, int], tuple[int, int, bool]]


def image(seed: int, planes: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (SIDE, SIDE + 4, planes), dtype=np.uint8)


@pytest.mark.parametrize("planes", [1, 3])
@pytest.mark.parametrize("place", [(0, 0, False), (6, 10, True), (3, 5, True), (6, 0, False)])
def test_a_crop_is_found_at_its_place(place: tuple[int, int, bool], planes: int) -> None:
    top, left, mirrored = place
    source = image(1, planes)
    crop = source[top : top + CROP, left : left + CROP]
    assert crops.find(crop[:, ::-1] if mirrored else crop, source) == (place,)


def test_what_is_not_cut_from_an_image_is_not_found() -> None:
    source = image(1)
    crop = source[2 : 2 + CROP, 3 : 3 + CROP].copy()
    crop[CROP // 2, 3] += 1
    assert crops.find(crop, source) == ()
    assert crops.find(crop, image(2)) == ()
    assert crops.find(source[:, :CROP], source[:CROP]) == ()  # larger than the image
    assert crops.find(np.repeat(crop, 3, axis=2), source) == ()
    assert crops.find(source[::-1][:CROP, :CROP], source) == ()  # upside down


def test_where_a_crop_is_that_looks_the_same_elsewhere_is_not_certain() -> None:
    dark = np.zeros((SIDE, SIDE, 1), np.uint8)
    found = crops.find(dark[:CROP, :CROP], dark)
    assert len(found) == 2  # of so many, to be quick
    assert Crop(0, 1, 0, 0, PLACES_THERE, PLACES_THERE, found).only is None
    assert not crops.distinct(dark, CROP, CROP)


def test_a_large_black_image_takes_no_longer_than_another() -> None:
    dark = np.zeros((1024, 1024, 3), np.uint8)
    began = time.perf_counter()
    assert len(crops.find(dark[:896, :896], dark)) == 2
    assert time.perf_counter() - began < 5  # at all 33,282 places it would take 20 s or more


@pytest.mark.parametrize("planes", [1, 3])
def test_an_image_without_two_equal_crops_is_known(planes: int) -> None:
    assert all(crops.distinct(image(seed, planes), CROP, CROP) for seed in range(20))
    assert crops.distinct(image(1, planes)[:CROP, :CROP], CROP, CROP)  # there is one place
    mirrored = np.concatenate([image(1, planes), image(1, planes)[:, ::-1]], axis=1)
    assert not crops.distinct(mirrored, CROP, CROP)
    assert not crops.distinct(image(1, planes), SIDE + 1, CROP)


def test_random_crops_of_dark_images_with_a_mark_in_a_corner_are_no_others() -> None:
    """The place of those crops that show the mark is certain, and near the corner."""
    random, found = np.random.default_rng(0), []
    for number in range(1024):
        marked = np.zeros((SIDE, SIDE, 1), np.uint8)
        marked[:5, :5] = random.integers(1, 256, (5, 5, 1))
        top, left, mirrored = at_random(random, number)
        crop = marked[top : top + CROP, left : left + CROP][:, :: -1 if mirrored else 1]
        where = crops.find(crop, marked)
        sides, distinct = (PLACES_THERE, PLACES_THERE), crops.distinct(marked, CROP, CROP)
        found.append(Crop(0, 1, number, number, *sides, where, distinct))
    assert different(found) == {}
    certain = [replace(crop, distinct=True) for crop in found]
    assert PLACES in different(certain)  # so the test would notice if these were looked at


def at_random(random: np.random.Generator, number: int) -> tuple[int, int, bool]:
    top, left = random.integers(PLACES_THERE, size=2).tolist()
    return top, left, bool(random.random() < 0.5)


def drawn(draw: Draw = at_random, count: int = 256, seed: int = 0) -> list[Crop]:
    """Two epochs of as many images, in two processes."""
    random = np.random.default_rng(seed)
    found = []
    for epoch in (1, 4):
        order = random.permutation(count)
        for number, which in enumerate(order.tolist()):
            process, place = divmod(number, count // 2)
            where = draw(random, place)
            found.append(Crop(process, epoch, place, which, PLACES_THERE, PLACES_THERE, (where,)))
    return found


def verdicts(found: list[Crop]) -> dict[str, str]:
    return {check.check: check.verdict for check in crops.checks(found, BATCH)}


def different(found: list[Crop]) -> dict[str, str]:
    checks = crops.checks(found, BATCH)
    return {c.check: str(c.variant) for c in checks if c.verdict == "different"}


def test_random_crops_pass_in_300_runs() -> None:
    for seed in range(300):
        assert different(drawn(count=64, seed=seed)) == {}
    assert set(verdicts(drawn()).values()) == {"pass"}


def with_place(change: Callable[[int, int, bool], tuple[int, int, bool]]) -> Draw:
    return lambda random, number: change(*at_random(random, number))


@pytest.mark.parametrize(
    ("draw", "rows", "said"),
    [
        (with_place(lambda t, w, f: (t, w, False)), {MIRRORED}, "no flip"),
        (with_place(lambda t, w, f: (t, w, True)), {MIRRORED}, "every crop is flipped"),
        (with_place(lambda t, w, f: (3, 3, f)), {PLACES}, "always the centre crop"),
        (
            with_place(lambda t, w, f: (1, w, f)),
            {PLACES},
            "always the same crop: 1 px from the top",
        ),
        (with_place(lambda t, w, f: (t, w // 2, f)), {PLACES}, "from the left"),
        (with_place(lambda t, w, f: (min(t, 5), w, f)), {PLACES}, "none at the last place"),
        (with_place(lambda t, w, f: (t, max(w, 1), f)), {PLACES}, "none at the first place"),
        (with_place(lambda t, w, f: (t, t, f)), {DRAWS}, "top predicts left"),
        (with_place(lambda t, w, f: (t, w, t > 3 if t != 3 else f)), {DRAWS}, "top predicts flip"),
        (with_place(lambda t, w, f: (t, w, w < 3 if w != 3 else f)), {DRAWS}, "left predicts flip"),
    ],
)
def test_what_is_not_random_is_named(draw: Draw, rows: set[str], said: str) -> None:
    found = different(drawn(draw))
    assert rows <= found.keys() <= rows | {DRAWS}  # a crop that never changes repeats itself
    (row,) = rows
    assert said in found[row]


@pytest.mark.parametrize(
    ("seed", "said"),
    [
        (lambda number: number % BATCH, "from batch to batch"),
        (lambda number: number // BATCH, "crops repeat within a batch"),
    ],
)
def test_crops_that_repeat_are_noticed(seed: Callable[[int], int], said: str) -> None:
    found = drawn(lambda _, number: at_random(np.random.default_rng(seed(number)), 0))
    assert said in different(found)[DRAWS]


def test_crops_that_are_the_same_in_each_epoch_are_noticed() -> None:
    first = {crop.image: crop for crop in drawn() if crop.epoch == 1}
    frozen = [
        crop if crop.epoch == 1 else replace(crop, places=first[crop.image].places)
        for crop in drawn()
    ]
    assert "same crop in each epoch" in different(frozen)[DRAWS]


def test_a_flip_that_is_drawn_once_for_a_batch_or_an_image_is_noticed() -> None:
    def flipped(random: np.random.Generator, number: int) -> tuple[int, int, bool]:
        top, left, _ = at_random(random, number)
        return top, left, bool(np.random.default_rng(number // BATCH).random() < 0.5)

    assert "flips repeat within a batch" in different(drawn(flipped))[DRAWS]
    odd = [replace(c, places=((*c.places[0][:2], c.image % 2 == 1),)) for c in drawn()]
    assert "an image has the same flip in each epoch" in different(odd)[DRAWS]
    rarely = [replace(c, places=((*c.places[0][:2], c.image % 5 == 1),)) for c in drawn(seed=1)]
    shuffled = np.random.default_rng(0).permutation(len(rarely))
    few = [replace(c, image=int(at)) for c, at in zip(rarely, shuffled, strict=True)]
    assert different(few).keys() == {MIRRORED}
    turns = [replace(c, places=((*c.places[0][:2], c.place % 2 == 1),)) for c in drawn()]
    assert DRAWS in different(turns)


def test_a_crop_that_is_in_no_image_is_noticed() -> None:
    found = drawn()
    (check,) = [c for c in crops.checks([replace(found[0], places=()), *found[1:]], BATCH)
                if c.check == FOUND]  # fmt: skip
    assert check.verdict == "different" and "1 of 512" in str(check.variant)
    assert verdicts(found)[FOUND] == "pass"


def test_too_few_crops_are_not_tested() -> None:
    few = drawn(count=256)[: crops.FEWEST - 1]
    assert verdicts(few) == {
        FOUND: "pass", PLACES: "not checked", MIRRORED: "not checked", DRAWS: "not checked"
    }  # fmt: skip
    assert set(verdicts([]).values()) == {"not checked"}
    assert "not checked" not in verdicts(drawn(count=256)[: crops.FEWEST]).values()


def test_images_of_several_sizes_are_tested_together() -> None:
    def of_sizes(change: Callable[[int], int]) -> list[Crop]:
        random, found = np.random.default_rng(0), []
        for number in range(512):
            tops, lefts = (int(each) for each in random.integers(3, 30, size=2))
            where = change(int(random.integers(tops))), int(random.integers(lefts))
            flip = bool(random.random() < 0.5)
            found.append(Crop(0, 1, number, number, tops, lefts, ((*where, flip),)))
        return found

    assert different(of_sizes(lambda top: top)) == {}
    assert different(of_sizes(lambda top: top // 2)).keys() == {PLACES}


def test_without_room_for_another_place_there_is_one() -> None:
    random = np.random.default_rng(0)
    found = [
        Crop(0, 1, number, number, 1, 1, ((0, 0, bool(random.random() < 0.5)),))
        for number in range(300)
    ]
    assert set(verdicts(found).values()) == {"pass"}
    # A single batch of them: there is nothing to compare flips with but those beside them.
    assert set(verdicts(found[: crops.FEWEST]).values()) == {"pass"}
    one = [check for check in crops.checks(found[:128], 128) if check.check == DRAWS]
    assert one[0].verdict == "pass"
