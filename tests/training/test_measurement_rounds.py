"""The measurements: how many steps and rounds, in which order, and what becomes of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from helpers.training import measurement_rounds, measuring
from helpers.training.measuring import Amount

Marks = list[tuple[str, int | None]]
STEPS = {"files": 2, "synthetic": 3, "no_allreduce": 3, "loader": 1}


def take(
    marks: Marks,
    *,
    together: bool = True,
    first: Callable[[bool], bool] = lambda more: more,
    noise: float = 0.0,
    round_seconds: float = 6.0,
    **seconds: float,
) -> measurement_rounds.Seconds:
    """Turns whose seconds are given; ``marks`` gets every phase and its images."""
    random, now = np.random.default_rng(0), [0.0]

    @contextmanager
    def phase(name: str, *, items: int | None = None) -> Iterator[None]:
        marks.append((name, items))
        yield

    def measurement(kind: str) -> measurement_rounds.Measurement:
        def taken(steps: int) -> float:
            now[0] += round_seconds / len(measurements)
            return seconds.get(kind, 1.0) * steps * float(np.exp(noise * random.normal()))

        return taken

    kinds = ("files", "synthetic", "loader", "no_allreduce")
    measurements = {kind: measurement(kind) for kind in kinds[: None if together else -1]}
    return measurement_rounds.interleaved(
        phase, measurements, steps=STEPS, images=10, first=first, clock=lambda: now[0]
    )


def rounds_of(**how: float) -> int:
    return len(take([], **how)["files"])  # type: ignore[arg-type]


def test_everything_is_measured_in_every_round() -> None:
    marks: Marks = []
    found = take(marks, files=4.0, no_allreduce=2.0)
    assert {kind: len(rounds) for kind, rounds in found.items()} == dict.fromkeys(STEPS, 6)
    assert found["files"] == [8.0] * 6 and found["no_allreduce"] == [6.0] * 6
    assert set(marks) == {
        ("files", 30),  # the step that does not count is work too
        ("synthetic", 40),
        # Nobody knows how many images these are, so the monitor must not divide by their time.
        ("without all-reduce", None),
        ("loader alone", None),
    }
    names = [name for name, _ in marks]
    for start in range(0, len(names), 4):
        assert set(names[start : start + 4]) == set(measurement_rounds.PHASES.values())
    # Files begin with nothing read ahead.
    before = [names[place - 1] for place, name in enumerate(names) if name == "files"]
    assert set(before) == {"loader alone"}
    assert names[:4] != names[4:8], "who comes first changes"


@pytest.mark.parametrize(
    ("seconds", "steps"), [(3.0, 1), (0.45, 3), (0.25, 4), (0.15, 10), (0.02, 50)]
)
def test_a_measurement_lasts_a_second_and_ten_steps_where_these_are_short(
    seconds: float, steps: int
) -> None:
    assert measurement_rounds.steps_of_a_repeat(seconds) == steps


def test_rounds_are_taken_until_the_medians_are_known_or_cannot_be() -> None:
    assert rounds_of(noise=0.005) == 6
    more = take([], noise=0.03, round_seconds=2.0)
    assert 6 < len(more["files"]) <= 30
    for kind in measurement_rounds.TRAINED:
        middle, low, high = measurement_rounds.median_of(more[kind])
        assert high - low <= 0.05 * middle
    assert rounds_of(noise=0.3) == 6, "60 seconds could not make it narrow"
    assert rounds_of(noise=0.02, round_seconds=13.0) == 6, "which six rounds have used already"


def test_rank_0_decides_how_many_rounds_all_processes_take() -> None:
    """Each has times of its own, and one that stops would leave the others waiting."""
    told: list[bool] = []

    def as_rank_0(more: bool) -> bool:
        told.append(more)
        return len(told) <= 3

    assert len(take([], noise=0.001, first=as_rank_0)["files"]) == 9
    assert told == [False] * 4, "this process would have stopped at six"


def test_the_interval_of_a_median_holds_it_in_95_percent() -> None:
    random = np.random.default_rng(0)
    for count in (6, 9, 15):
        each = [
            measurement_rounds.median_of(draw) for draw in random.lognormal(0, 0.2, (2000, count))
        ]
        assert np.mean([low <= 1 <= high for _, low, high in each]) >= 0.945
    assert measurement_rounds.median_of(range(9)) == (4, 1, 7)
    assert measurement_rounds.median_of(range(15)) == (7, 3, 11)


HONEST = Amount(wanted=20, steps=20, updates=20, images=160)


@pytest.mark.parametrize(
    ("files", "synthetic", "said"),
    [
        (HONEST, replace(HONEST, updates=10), "synthetic: 10 updates in 20 steps"),
        (replace(HONEST, updates=10), HONEST, "files: 10 updates in 20 steps"),
        (HONEST, replace(HONEST, images=40), "synthetic: 40 instead of 160 images"),
        (HONEST, replace(HONEST, steps=10), "synthetic: 10 instead of 20 steps"),
    ],
)
def test_skipped_work_and_a_smaller_batch_fail_in_any_process(
    files: Amount, synthetic: Amount, said: str
) -> None:
    honest, other = {"files": HONEST, "synthetic": HONEST}, {"files": files, "synthetic": synthetic}
    found = measuring.amount([honest, other], 8, overflows=False)
    assert found.verdict == "fail" and found.reason == said
    assert measuring.amount([honest, honest], 8, overflows=False).verdict == "pass"
    fewer = {"files": replace(HONEST, updates=18)}
    assert measuring.amount([fewer], 8, overflows=True).verdict == "pass", "fp16 may leave out some"


def test_the_record_keeps_every_round() -> None:
    seconds: measurement_rounds.Seconds = {"files": [1.0, 4.0, 2.0], "loader": [0.5, 0.5, 0.5]}
    found = measuring.as_record([seconds, dict.fromkeys(seconds, [0.5] * 3)], 100)
    assert set(found) == {"files", "loader"}
    assert found["files"] == {"images_per_second": 50, "rounds": [100, 25, 50]}


@pytest.mark.parametrize(("left", "told"), [([0.1, 0.2], False), ([0.1, -0.001], True)])
def test_an_all_reduce_that_takes_longer_than_a_step_is_left_out(
    left: list[float], told: bool
) -> None:
    """A tiny network over two nodes had a step of -1 ms without it, and no record was written."""
    seconds = {"files": [1.0, 1.0], "synthetic": [0.5, 0.5], "no_allreduce": left}
    kept = measuring.as_record([seconds], 1)
    assert ("no_allreduce" not in kept) == told
    assert kept.keys() - {"no_allreduce"} == {"files", "synthetic"}
