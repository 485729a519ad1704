"""What an observer notes of evaluations, where there is little to note."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from helpers.fairness.training_checks import Evaluation, other_arrays, other_labels
from helpers.training.observer import Evaluated
from helpers.training.world import World


@pytest.mark.parametrize("outputs", [(), (3,)])
def test_a_process_without_an_image_has_none_wrong(outputs: tuple[int, ...]) -> None:
    """Two processes share an evaluation of one image."""
    labels = np.ones((1, *outputs), np.float32)
    images: Any = SimpleNamespace(valid=pd.DataFrame(index=[0]), targets=lambda part: labels)

    def evaluated(rank: int, *batches: Any) -> Evaluation:
        world = World(rank, 2, ("device",), "cpu")
        passed = Evaluated(batches)
        assert len(list(passed)) == len(batches)
        return passed.images(world, images, "valid")

    pixels = np.zeros((1, 2, 2, 1), np.uint8)
    assert evaluated(0, (pixels, labels)) == Evaluation("valid", 1, 1, 0)
    assert evaluated(0, (pixels, 0 * labels)) == Evaluation("valid", 1, 1, 1)
    assert evaluated(1) == Evaluation("valid", 0, 0, 0)


def test_other_labels_are_counted() -> None:
    table = np.array([[0, 1], [1, 1], [0, 0]])
    assert other_labels(table, table) == 0 and other_labels(table[:0], table[:0]) == 0
    assert other_labels(table, table[::-1]) == 2
    assert other_labels(np.array([0, 1, 2]), np.array([0, 2, 2])) == 1


def test_weights_that_were_changed_before_the_first_step_are_counted() -> None:
    start = {"conv": np.ones(3, np.float32), "head": np.full(2, np.float32(0.1))}

    def others(**held: np.ndarray) -> int:
        return other_arrays(start | held, start)

    assert others() == 0
    assert others(head=np.nextafter(start["head"], np.float32(1))) == 0  # a mean is rounded
    assert others(head=start["head"] * np.float32(1.001)) == 1
    assert others(head=start["head"][:1] * 2, conv=start["conv"] * 0) == 2
