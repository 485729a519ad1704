"""What a step of each rank is made of, and which of them the others wait for."""

from typing import Any

import pytest

from helpers.training import rank_tables, step_clock, step_parts
from helpers.training.step_clock import StepClock
from helpers.training.step_parts import Wait, Waited


class Time:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture(name="time")
def time_fixture(monkeypatch: pytest.MonkeyPatch) -> Time:
    found = Time()
    monkeypatch.setattr(step_clock, "time", found)
    return found


def epoch(time: Time, noted: bool = True) -> tuple[StepClock, list[Wait]]:
    """Four steps: 0.1 s for the batch, then 0.5, 0.3 and 0.05 s; the first takes much longer."""
    waits = []
    with StepClock(lambda result: None) as clock:
        for step in range(4):
            slow = 10 if step == 0 else 1
            time.now += 0.1 * slow
            batches = clock.batches([step]) if noted else iter([step])
            next(batches)
            time.now += 0.5 * slow
            time.now += 0.3 * slow
            waits.append(Wait(0.3 * slow, time.now))
            time.now += 0.05 * slow
            clock.queued(None)
    return clock, waits


def test_a_step_falls_into_its_parts(time: Time) -> None:
    clock, waits = epoch(time)
    found = step_parts.of_epoch(clock, Waited.of(1.0, waits))
    assert found == pytest.approx({"data": 0.1, "compute": 0.5, "all_reduce": 0.3, "update": 0.05})
    on_gpu = [Wait(wait.seconds) for wait in waits]
    found = step_parts.of_epoch(clock, Waited.of(1.0, on_gpu))
    assert found["update"] is None and found["compute"] == pytest.approx(0.55)


def test_what_computing_hides_of_the_all_reduce_is_told(time: Time) -> None:
    clock, waits = epoch(time)
    whole = [wait._replace(total=4 * wait.seconds) for wait in waits]
    found = step_parts.of_epoch(clock, Waited.of(1.0, whole))
    assert found["all_reduce_total"] == pytest.approx(1.2)
    table = rank_tables.parts({"step_parts": [{"rank": 0, "host": "n1"} | found]})
    assert table is not None and float(table["of it hidden"].iloc[0]) == pytest.approx(0.75)
    assert step_parts.hidden_share(0.1, 0.2) == 0.0 and step_parts.hidden_share(0.0, 0.0) is None
    assert step_parts.hidden_share(0.1, -0.2) == 1.0


@pytest.mark.parametrize("waited", [None, 3.0, Waited.of(3.0, [Wait(3.0, 1.0)])])
def test_what_is_not_seen_step_by_step_is_part_of_compute(time: Time, waited: Any) -> None:
    found = step_parts.of_epoch(epoch(time)[0], waited)
    assert found == pytest.approx(
        {"data": 0.1, "compute": 0.85, "all_reduce": None, "update": None}
    )
    found = step_parts.of_epoch(epoch(time, noted=False)[0], waited)
    assert found["data"] is None and found["compute"] == pytest.approx(0.95)


def rank(number: int, host: str, compute: float, all_reduce: float | None) -> dict[str, Any]:
    given = {"data": 0.01, "compute": compute, "all_reduce": all_reduce, "update": None}
    return {"rank": number, "host": host} | given


def test_the_slowest_is_who_waits_least() -> None:
    parts = [rank(0, "n1", 0.5, 0.4), rank(1, "n1", 0.6, 0.3), rank(2, "n2", 0.89, 0.01)]
    slowest = step_parts.slowest(parts)
    assert slowest is not None and slowest["rank"] == 2
    said = "Slowest rank: 2 on n2, busy for 0.9 s of a step; the quickest for 0.51 s."
    assert step_parts.in_words(parts) == said
    table = rank_tables.parts({"step_parts": parts})
    assert table is not None and list(table["host"]) == ["n1", "n1", "n2"]
    assert "update (s)" not in table.columns
    assert step_parts.slowest(parts[:1]) is None and not step_parts.in_words(parts[:1])


def test_inside_a_compiled_step_none_is_called_slowest() -> None:
    parts = [rank(0, "n1", 0.5, None), rank(1, "n2", 0.6, None)]
    assert step_parts.slowest(parts) is None
    assert step_parts.in_words(parts).startswith("Which rank is slowest cannot be seen")
