"""The certificate must fail when something is broken on purpose; each test plants one thing."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from data_prep import FINDINGS
from helpers import fairness, weights
from helpers.recipe import lookup

SCALED = lookup("demo").on(2)
INITIAL = weights.canonical("seeded")
FRAMEWORK = SimpleNamespace(dump_weights=lambda model: model)


def verdicts(**changes: Any) -> dict[str, str]:
    given: dict[str, Any] = {
        "model": {name: array.copy() for name, array in INITIAL.arrays.items()},
        "evaluate_pixels": lambda grey: fairness.expected_pixels(grey, SCALED.recipe),
        "findings": FINDINGS,
    } | changes
    model = given.pop("model")
    certificate = fairness.certify(FRAMEWORK, model, INITIAL, SCALED, **given)
    assert certificate.comparable == (set(certificate.table()["verdict"]) == {"pass"})
    return dict(zip(certificate.table()["check"], certificate.table()["verdict"], strict=True))


def failed(**changes: Any) -> list[str]:
    return [check for check, verdict in verdicts(**changes).items() if verdict == "fail"]


def test_the_definition_passes_itself() -> None:
    assert set(verdicts().values()) == {"pass"}


def test_one_changed_weight_is_caught() -> None:
    model = {name: array.copy() for name, array in INITIAL.arrays.items()}
    model["features.norm5.running_var"][7] += 1e-6
    assert failed(model=model) == ["initial weights"]


def test_a_missing_layer_is_caught() -> None:
    model = dict(INITIAL.arrays)
    del model["features.norm5.bias"]
    assert failed(model=model) == ["initial weights"]


def test_nan_does_not_pass() -> None:
    model = {name: array.copy() for name, array in INITIAL.arrays.items()}
    model["classifier.bias"][:] = np.nan
    assert failed(model=model) == ["initial weights"]


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
