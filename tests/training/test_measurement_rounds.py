"""Section 11's measurements in turns: what is counted, in which order, and what becomes of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from helpers import record
from helpers.training import measurement_rounds

Marks = list[tuple[str, int | None]]


def take(marks: Marks, *, together: bool = True, **seconds: float) -> measurement_rounds.Seconds:
    """Turns whose seconds are given; ``marks`` gets every phase and its images."""

    @contextmanager
    def phase(name: str, *, items: int | None = None) -> Iterator[None]:
        marks.append((name, items))
        yield

    def turn(kind: str) -> measurement_rounds.Turn:
        return lambda steps: seconds.get(kind, 1.0) * steps

    kinds = ("files", "synthetic", "loader", "product", "no_allreduce")
    turns = {kind: turn(kind) for kind in kinds[: None if together else -1]}
    return measurement_rounds.take_turns(phase, turns, steps=2, images=10)


def test_everything_has_its_turn_in_every_round() -> None:
    marks: Marks = []
    found = take(marks, files=4.0, no_allreduce=2.0)
    assert {kind: len(turns) for kind, turns in found.items()} == dict.fromkeys(
        (*measurement_rounds.KINDS, measurement_rounds.PRODUCT), 6
    )
    assert found["files"] == [8.0] * 6 and found["no_allreduce"] == [4.0] * 6
    assert set(marks) == {
        ("files", 30),  # the step that does not count is work too
        ("synthetic", 30),
        # Nobody knows how many images these are, so the monitor must not divide by their time.
        ("without all-reduce", None),
        ("loader alone", None),
        ("matrix product", None),
    }
    names = [name for name, _ in marks]
    for first in range(0, len(names), 5):
        assert set(names[first : first + 5]) == set(measurement_rounds._PHASES.values())


def test_files_begin_with_nothing_read_ahead() -> None:
    marks: Marks = []
    take(marks)
    names = [name for name, _ in marks]
    before = [names[place - 1] for place, name in enumerate(names) if name == "files"]
    assert set(before) == {"loader alone"}
    assert names[:5] != names[5:10], "who comes first changes"


def test_one_device_has_none_to_be_silent_to() -> None:
    assert set(take([], together=False)) == {"files", "synthetic", "loader", "product"}


def test_processes_begin_a_product_together() -> None:
    """Steps with an all-reduce, which end at the same time in all of them, come right before it."""
    marks: Marks = []
    take(marks)
    names = [name for name, _ in marks]
    before = {names[place - 1] for place, name in enumerate(names) if name == "matrix product"}
    assert before == {"synthetic"}


def test_a_turn_is_two_seconds_and_an_eighth_of_an_epoch_at_most() -> None:
    def steps(seconds: float, count: int) -> int:
        return measurement_rounds.steps_of_a_turn([{"train_seconds": seconds, "steps": count}])

    assert steps(20.0, 100) == 10
    assert steps(16.0, 16) == 2
    assert steps(80.0, 8) == 1
    assert steps(0.01, 17) == 3


def test_all_replicas_wait_for_the_slowest() -> None:
    found: list[measurement_rounds.Seconds] = [{"files": [1.0, 2.0]}, {"files": [1.5, 1.0]}]
    assert measurement_rounds.slowest(found) == {"files": [1.5, 2.0]}


def test_the_record_keeps_every_round() -> None:
    seconds: measurement_rounds.Seconds = {"files": [1.0, 4.0, 2.0], "loader": [0.5, 0.5, 0.5]}
    seconds |= {"product": [0.1, 0.1, 0.1]}
    found = measurement_rounds.as_record(seconds, steps=3, images=100)
    assert set(found) == {"files", "loader"}, "a product has no images"
    files: dict[str, Any] = found["files"]
    assert files["rounds"] == [100, 25, 50]
    assert (files["images_per_second"], files["low"], files["high"]) == (50, 25, 100)
    assert files["images"] == 900 and files["seconds"] == pytest.approx(3 * (1 + 4 + 2))
    assert list(measurement_rounds.table(found).loc["loader alone"]) == [200, 200, 200]


def test_training_figures_of_a_resumed_run_are_of_one_process() -> None:
    rows = [
        {"train_seconds": 1.0, "valid_seconds": 1.0, "images_per_second": rate, "images": 8}
        for rate in (1.0, 2.0, 30.0, 40.0, 50.0)
    ]
    assert record.training(rows, 0.0)["images_per_second"] == 35
    assert record.training(rows, 0.0, 2)["images_per_second"] == 45
    assert record.training(rows, 0.0, 4)["images_per_second"] == 50
    assert record.training(rows, 0.0, 5)["images_per_second"] == 35
    assert record.training(rows, 0.0, 2)["seconds"] == 10


@pytest.mark.parametrize(("left", "told"), [([0.1, 0.2], False), ([0.1, -0.001], True)])
def test_an_all_reduce_that_takes_longer_than_a_step_is_left_out(
    left: list[float], told: bool
) -> None:
    """A tiny network over two nodes had a step of -1 ms without it, and no record was written."""
    seconds = {"files": [1.0, 1.0], "synthetic": [0.5, 0.5], "no_allreduce": left}
    kept = measurement_rounds.without_the_impossible(seconds)
    assert ("no_allreduce" not in kept) == told
    assert kept.items() <= seconds.items()
