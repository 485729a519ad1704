"""The fairness check must fail when something is broken on purpose; each test plants one thing."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from helpers.fairness import check_results, reference, reference_checks
from helpers.networks import weights
from helpers.networks.shapes import RUNNING
from helpers.recipe import lookup

SCALED = lookup("demo").on(2)
INITIAL = weights.canonical("random").arrays
NORMS = reference.KEPT["densenet121"].norms


def with_changed(name: str, change: Any) -> check_results.Check:
    held = {key: array.copy() for key, array in INITIAL.items()}
    change(held[name])
    return reference_checks.same_weights(held, INITIAL)


@pytest.mark.parametrize("towards", [-np.inf, np.inf])
def test_weights_agree_to_the_last_bit(towards: float) -> None:
    def nudge(array: np.ndarray) -> None:
        array[3] = np.nextafter(array[3], np.float32(towards))

    check = with_changed("features.norm5.weight", nudge)
    assert check.check == "initial weights" and check.reason is None
    assert check.threshold == 0.0 and check.verdict == "fail"
    assert check.difference == pytest.approx(1.2e-7, rel=0.6)
    assert with_changed("classifier.bias", lambda array: array.fill(np.nan)).verdict == "fail"


@pytest.mark.parametrize("held", [True, False])
def test_a_name_on_one_side_only_is_told(held: bool) -> None:
    more = INITIAL | {"features.b": np.zeros(1), "features.a": np.zeros(1)}
    check = reference_checks.same_weights(*((more, INITIAL) if held else (INITIAL, more)))
    assert check.difference == np.inf and check.verdict == "fail"
    assert check.reason == "features.a is on one side only"


def test_the_references_pixels_are_the_definitions() -> None:
    image = reference_checks.canonical_image(SCALED.recipe.image_size)
    known = reference.load()["pixels"]  # made by torchvision
    assert np.abs(reference_checks.expected_pixels(image, SCALED.recipe) - known).max() < 1e-6


@pytest.mark.parametrize(
    ("shape", "crop", "top", "left"), [((40, 50), 33, 4, 8), ((38, 39), 32, 3, 4)]
)
def test_the_crop_is_the_centre_by_torchvisions_rule(
    shape: tuple[int, int], crop: int, top: int, left: int
) -> None:
    """Half a pixel goes to the even side: 3.5 to 4, 8.5 to 8."""
    image = np.random.default_rng(0).integers(0, 256, (*shape, 1), dtype=np.uint8)
    recipe = replace(SCALED.recipe, crop=crop)
    part = image[top : top + crop, left : left + crop]
    seen = reference_checks.expected_pixels(image, recipe)
    assert seen.dtype == np.float32 and seen.shape == (3, crop, crop)
    assert np.array_equal(seen, reference.network_input(part[None], recipe)[0].astype(np.float32))


def statistics(
    found: Mapping[str, np.ndarray], steps: int = 1, limit: float = 1e-6
) -> list[check_results.Check]:
    known, before = reference.load(), reference.arrays()
    return reference_checks.running_statistics(
        found, known, before, steps, limit, "after a step", NORMS
    )


def after_a_step(**changes: float) -> dict[str, np.ndarray]:
    """The reference's running statistics; ``norm0_mean`` and so on move them in proportion."""
    found = {}
    for norm in NORMS:
        for part in RUNNING:
            name = f"{norm}.{part}"
            short = name.removeprefix("features.").replace(".running_", "_")
            found[name] = reference.load()[name].astype(np.float64) * (1 + changes.get(short, 0.0))
    return found


@pytest.mark.parametrize("limit", [1e-6, 1e-5, 1e-2])
@pytest.mark.parametrize("norm", ["norm0", "norm5"])
@pytest.mark.parametrize(
    ("part", "row"),
    [("mean", "running mean after a step"), ("var", "running variance after a step")],
)
def test_running_statistics_at_their_limit(norm: str, part: str, row: str, limit: float) -> None:
    """The larger limit 1e-2 is bfloat16's, above what the biased variance is off by."""
    below, above = (
        statistics(after_a_step(**{f"{norm}_{part}": much * limit}), limit=limit)
        for much in (0.95, 1.05)
    )
    assert [(check.verdict, check.reason) for check in below] == [("pass", None)] * 2
    assert [check.check for check in above if check.verdict == "fail"] == [row]
    assert {check.threshold for check in above} == {limit}


def biased(steps: int, **changes: float) -> dict[str, np.ndarray]:
    """What a framework keeps that takes a batch's variance as it is: (n-1)/n of PyTorch's."""
    found = after_a_step()
    for norm, side in NORMS.items():
        name, n = f"{norm}.running_var", 4 * side**2
        old = 0.9**steps * reference.arrays()[name].astype(np.float64)
        off = 1 + changes.get(norm.removeprefix("features."), 0.0)
        found[name] = off * (old + (found[name] - old) * (n - 1) / n)
    return found


@pytest.mark.parametrize("steps", [1, 5])
def test_the_biased_variance_is_known_for_what_it_is(steps: int) -> None:
    mean, variance = statistics(biased(steps), steps)
    assert mean.verdict == "pass"
    assert variance.verdict == "expected" and variance.reason == reference_checks.BIASED
    assert statistics(biased(steps), steps=6 - steps)[1].verdict == "fail"
    for norm in ("norm0", "norm5"):  # it explains nothing more than itself
        for by, verdict, reason in ((0.95, "expected", variance.reason), (1.05, "fail", None)):
            off = statistics(biased(steps, **{norm: by * 1e-6}), steps)[1]
            assert (off.verdict, off.reason) == (verdict, reason)


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        (1.0, "as long as expected: a mean, not a sum"),
        (1.0009, "as long as expected: a mean, not a sum"),
        (0.95, "0.95 times as long, at an angle of 0.0 degrees"),
        (0.46, "0.46 times as long, at an angle of 0.0 degrees"),
        (2.0, "2 times as long, at an angle of 0.0 degrees"),
        (2.9, "2.9 times as long: a sum in place of a mean?"),
        (1 / 3, "0.333 times as long: divided by the devices twice?"),
    ],
)
def test_a_sum_is_told_from_a_mean_by_the_number_of_devices(scale: float, words: str) -> None:
    known = np.array([1.0, -2.0, 0.5])
    across = scale * np.array([2.0, 1.0, 0.0])
    assert reference_checks.scale_in_words(scale * known, known, 1e-3, 3) == words
    said = reference_checks.scale_in_words(scale * known + across, known, 1e-3, 3)
    assert "at an angle of" in said and "?" not in said and "expected" not in said
