"""Where an epoch's time goes, seen from inside the loop, on devices that a test plays."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from helpers.training import step_clock as clock_module
from helpers.training.step_clock import StepClock


def batches(clock: StepClock, loader: Iterable[int]) -> Iterator[int]:
    """The loader's, as ``run.watch`` passes them on."""
    for batch in loader:
        clock.arrived(time.perf_counter())
        yield batch


class Timeline:
    """A loop and a device on a clock of their own: seconds pass only where a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop, self.device, self.seen = 0.0, 0.0, 0.0
        loop = threading.get_ident()
        monkeypatch.setattr(
            clock_module.time,
            "perf_counter",
            lambda: self.loop if threading.get_ident() == loop else self.seen,
        )

    def batches(self, count: int, seconds: float) -> Iterator[int]:
        for number in range(count):
            self.loop += seconds
            yield number

    def step(self, seconds: float) -> float:
        """Queue a step on the device; the moment at which it will be done."""
        self.device = max(self.device, self.loop) + seconds
        return self.device

    def completion(self, done: float) -> Callable[[], None]:
        return lambda: setattr(self, "seen", done)


def test_how_far_an_epoch_is_is_told_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    timeline = Timeline(monkeypatch)
    with StepClock(lambda result: None, told.append) as clock:
        for _ in batches(clock, timeline.batches(6, clock_module.TELL_SECONDS / 2)):
            clock.queued(None)
    assert told == [0, 2, 4, 6]


@pytest.mark.parametrize(
    ("loading", "queueing", "computing", "waits", "step"),
    [
        (0.04, 0, 0.03, 0.04 + 9 * 0.01, 0.04),  # at the same time: it waits only for the rest
        (0.002, 0, 0.02, 0.002, 0.02),  # busy: it waits for the first batch alone
        (0.01, 0.03, None, 0.1, 0.04),  # done when its step returns
    ],
)
def test_what_a_device_waits_for(
    loading: float,
    queueing: float,
    computing: float | None,
    waits: float,
    step: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timeline = Timeline(monkeypatch)
    with StepClock(timeline.completion if computing else lambda result: None) as clock:
        for _ in batches(clock, timeline.batches(10, loading)):
            timeline.loop += queueing
            clock.queued(timeline.step(computing) if computing else None)
    assert clock.data_seconds == pytest.approx(waits)
    assert clock.first_step_seconds == pytest.approx(loading + (computing or queueing))
    assert clock.step_seconds == pytest.approx([step] * 9)


def test_the_loop_itself_never_waits() -> None:
    works: list[Future[Any]] = []
    go = threading.Event()  # set when the loop is over: a loop that waited would never end
    with ThreadPoolExecutor(1) as device, StepClock(lambda work: work.result) as clock:
        for _ in batches(clock, range(10)):
            works.append(device.submit(go.wait, 60))
            clock.queued(works[-1])
        assert not any(work.done() for work in works)
        go.set()
    assert all(work.result() for work in works)
    assert len(clock.step_seconds) == 9


def test_an_error_in_the_loop_is_not_held_up_by_a_device_that_never_ends() -> None:
    forever: Future[None] = Future()
    with pytest.raises(ValueError, match="loop"), StepClock(lambda work: work.result) as clock:
        clock.queued(forever)
        raise ValueError("loop")
    forever.set_result(None)
