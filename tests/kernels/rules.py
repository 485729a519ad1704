"""What holds of every notebook's optimisers: rule, weight decay, and a checkpoint's state."""

from collections.abc import Mapping
from itertools import product

import numpy as np
import pytest

from helpers.fairness import reference
from helpers.fairness.training_loop import RULES
from helpers.recipe import Rule

TASKS = ("multilabel", "multiclass")
EVERY_DAY = ("momentum", "multiclass")
"""The other rules and the other task are in the fairness check of the notebooks as they are."""
CASES = [
    pytest.param(*case, marks=() if case == EVERY_DAY else pytest.mark.slow)
    for case in product(RULES, TASKS)
]
"""(rule, task) for pytest."""


Arrays = Mapping[str, np.ndarray]

MOMENTS = {"sgd": (), "momentum": ("first",), "adam": ("first", "second")}
"""What an optimiser keeps for each weight, by the names that a checkpoint has."""


def assert_continues(
    rule: Rule, whole: Arrays, two: Arrays, state: Arrays, resumed: Arrays
) -> None:
    """The shallow network's weights after three steps are those after two and one.

    ``state`` is the optimiser's in between.
    """
    start = reference.shallow_arrays()
    trained = [name for name in start if "running" not in name]
    assert {name for name in state if "/" in name} == {
        f"{moment}/{name}" for moment in MOMENTS[rule.name] for name in trained
    }
    assert "step" in state
    for name in trained:
        np.testing.assert_allclose(resumed[name], whole[name], rtol=1e-5, atol=1e-6)
        assert not np.array_equal(whole[name], start[name])
    if rule.name == "momentum":  # as PyTorch has it: of the size of gradients, and with their sign
        way = np.concatenate([(whole[name] - start[name]).ravel() for name in trained])
        velocity = np.concatenate([state[f"first/{name}"].ravel() for name in trained])
        assert np.vdot(way, velocity) < 0
        two_steps = np.linalg.norm(way) / np.linalg.norm(velocity)
        assert 0.05 < two_steps < 0.5, "without the rate in it"
