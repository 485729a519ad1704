"""What holds of every notebook's optimisers: rule, weight decay, and a checkpoint's state."""

from collections.abc import Mapping
from itertools import product

import numpy as np
import pytest

from helpers.fairness import reference
from helpers.fairness.training_loop import RULES

TASKS = ("multilabel", "multiclass")
EVERY_DAY = ("momentum", "multiclass")
"""The other rules and the other task are in the fairness check of the notebooks as they are."""
CASES = [
    pytest.param(*case, marks=() if case == EVERY_DAY else pytest.mark.slow)
    for case in product(RULES, TASKS)
]
"""(rule, task) for pytest."""


Arrays = Mapping[str, np.ndarray]


def assert_continues(whole: Arrays, resumed: Arrays) -> None:
    """The shallow network's weights after three steps are those after two and one."""
    start = reference.shallow_arrays()
    trained = [name for name in start if "running" not in name]
    for name in trained:
        np.testing.assert_allclose(resumed[name], whole[name], rtol=1e-5, atol=1e-6)
        assert not np.array_equal(whole[name], start[name])
