"""Weights that differ between devices, or that an evaluation has alone, are noticed and named."""

import numpy as np
import pytest

from helpers.fairness import weight_checks
from helpers.fairness.weight_checks import Moment, moment

WHEN = [
    ("when epoch 1 begins", False, 0),
    ("after the first step", True, 1),
    ("after the last step of epoch 1", True, 2),
    ("after epoch 1", False, 2),
    ("in the validation of epoch 1", False, 2),
    ("when epoch 2 begins", False, 2),
    ("after the last step of epoch 2", True, 3),
    ("after epoch 2", False, 3),
    ("in the validation of epoch 2", False, 3),
    ("in the saved file", False, 3),
    ("in the test", False, 3),
]


def process(other: dict[str, int] | None = None, devices: int = 2) -> list[Moment]:
    """The moments of a process, of which some have another value on the last device."""
    found = []
    for when, trained, value in WHEN:
        last = (other or {}).get(when, value)
        held = [np.full(3, float(each)) for each in [value] * (devices - 1) + [last]]
        found.append(moment(when, held, trained=trained))
    return found


def test_equal_weights_pass() -> None:
    both = [process(), process()]
    assert weight_checks.together(both).verdict == "pass"
    assert weight_checks.evaluated(both).verdict == "pass"


@pytest.mark.parametrize("devices", [1, 2])
def test_devices_that_differ_within_an_epoch_fail(devices: int) -> None:
    """In one process or in two, although they are equal again at the end of the epoch."""
    found = weight_checks.together([process(), process({WHEN[1][0]: 7}, devices)])
    assert found.verdict == "fail"
    assert found.reason == "not the same after the first step: does each device train alone?"


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"in the test": 7}, "in the test: not those in the saved file"),
        ({"in the validation of epoch 1": 7}, "in the validation of epoch 1: not those after epoc"),
        ({"when epoch 2 begins": 7}, "when epoch 2 begins: not those in the validation of epoch 1"),
    ],
)
def test_other_weights_in_an_evaluation_are_named(other: dict[str, int], said: str) -> None:
    found = weight_checks.evaluated([process(other, 1)])
    assert found.verdict == "different" and f"weights ({said}" in str(found.variant)
