"""The certificate must fail when something is broken on purpose; each test plants one thing."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from data_prep import FINDINGS
from helpers import certificate, fairness, reference, weights
from helpers.recipe import lookup

SCALED = lookup("demo").on(2)
INITIAL = weights.canonical("seeded").arrays


def failed(**changes: Any) -> list[str]:
    given: dict[str, Any] = {
        "evaluate_pixels": lambda grey: fairness.expected_pixels(grey, SCALED.recipe),
        "findings": FINDINGS,
        "recipe": SCALED,
    } | changes
    return [c.check for c in fairness.same_inputs(**given) if c.verdict != "pass"]


def with_changed(name: str, change: Any) -> certificate.Check:
    held = {key: array.copy() for key, array in INITIAL.items()}
    change(held[name])
    return fairness.same_weights(held, INITIAL)


def test_the_definition_passes_itself() -> None:
    assert failed() == []
    assert fairness.same_weights(INITIAL, INITIAL).verdict == "pass"


def test_one_changed_weight_is_caught() -> None:
    def nudge(array: np.ndarray) -> None:
        array[7] += 1e-6

    assert with_changed("features.norm5.running_var", nudge).verdict == "fail"


def test_a_missing_layer_is_caught() -> None:
    held = {name: array for name, array in INITIAL.items() if name != "features.norm5.bias"}
    assert fairness.same_weights(held, INITIAL).verdict == "fail"


def test_nan_does_not_pass() -> None:
    assert with_changed("classifier.bias", lambda array: array.fill(np.nan)).verdict == "fail"
    assert certificate.Check("", float("nan"), 1.0, "a reason", rest=float("nan")).verdict == "fail"


def test_a_reason_counts_only_where_it_predicts_the_difference() -> None:
    assert certificate.Check("", 0.1, 0.01, "why", rest=0.001).verdict == "known"
    assert certificate.Check("", 0.1, 0.01, "why", rest=0.02).verdict == "fail"
    assert certificate.Check("", 0.1, 0.01, "why").verdict == "fail"
    assert certificate.Check("", None, None, "one device").verdict == "not checked"
    known = certificate.Certificate((certificate.Check("", 0.1, 0.01, "why", rest=0.0),))
    assert known.comparable


def test_the_scale_of_the_recipe_is_checked() -> None:
    assert failed(recipe=replace(SCALED, learning_rate=1e-4)) == ["learning rate x devices"]
    assert failed(recipe=replace(SCALED, global_batch=64)) == ["global batch = batch x devices"]


def test_the_references_pixels_are_the_definitions() -> None:
    image = fairness.canonical_image(SCALED.recipe.resized)
    known = reference.load()["pixels"]  # made by torchvision
    assert np.abs(fairness.expected_pixels(image, SCALED.recipe) - known).max() < 1e-6


def test_statistics_that_survive_are_told_apart() -> None:
    """The mean after the first convolution, without a framework."""
    start, (grey, _) = reference.arrays(), reference.batch()
    after = 0.9 * start["features.norm0.running_mean"] + 0.1 * reference.after_conv0(
        start, grey
    ).mean(axis=(0, 2, 3))
    known = reference.load()["features.norm0.running_mean"]
    assert np.abs(after - known).max() < 1e-7


def test_swapped_labels_are_caught() -> None:
    swapped = (FINDINGS[1], FINDINGS[0], *FINDINGS[2:])
    assert failed(findings=swapped) == ["label order"]


@pytest.mark.parametrize("shift", [-1, 1])
def test_a_shifted_crop_is_caught(shift: int) -> None:
    def shifted(grey: np.ndarray) -> np.ndarray:
        return fairness.expected_pixels(np.roll(grey, shift, axis=1), SCALED.recipe)

    assert failed(evaluate_pixels=shifted) == ["evaluation pixels"]


def test_a_resize_instead_of_a_crop_is_caught() -> None:
    from PIL import Image

    def resized(grey: np.ndarray) -> np.ndarray:
        crop = SCALED.recipe.crop
        small = np.asarray(Image.fromarray(grey).resize((crop, crop)))
        return fairness.expected_pixels(small, SCALED.recipe)

    assert failed(evaluate_pixels=resized) == ["evaluation pixels"]


def test_a_wrong_shape_is_caught() -> None:
    def grey_only(grey: np.ndarray) -> np.ndarray:
        return fairness.expected_pixels(grey, SCALED.recipe)[:1]

    assert failed(evaluate_pixels=grey_only) == ["evaluation pixels"]
