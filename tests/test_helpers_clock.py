"""Where an epoch's time goes, seen from inside the loop, on a device played by a thread."""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from helpers.clock import StepClock


def slow(batches: int, seconds: float) -> Iterator[int]:
    for number in range(batches):
        time.sleep(seconds)
        yield number


def test_a_device_that_computes_while_the_next_batch_is_read_waits_only_for_the_rest() -> None:
    """Loading takes 40 ms a batch, the device 30 ms at the same time: it waits 10 ms for each."""
    with ThreadPoolExecutor(1) as device, StepClock(lambda work: work.result) as clock:
        for _ in clock.batches(slow(10, 0.04)):
            clock.queued(device.submit(time.sleep, 0.03))
    assert len(clock.step_seconds) == 9
    assert 0.04 + 9 * 0.005 < clock.data_seconds < 0.04 + 9 * 0.025
    assert clock.first_step_seconds == pytest.approx(0.07, abs=0.03)


def test_a_busy_device_waits_for_nothing() -> None:
    with ThreadPoolExecutor(1) as device, StepClock(lambda work: work.result) as clock:
        for _ in clock.batches(slow(10, 0.002)):
            clock.queued(device.submit(time.sleep, 0.02))
    assert clock.data_seconds < 0.02  # the first batch


def test_a_device_that_is_done_when_its_step_returns_needs_no_thread() -> None:
    with StepClock(lambda result: None) as clock:
        for _ in clock.batches(slow(5, 0.01)):
            time.sleep(0.01)
            clock.queued(None)
    assert clock.data_seconds == pytest.approx(0.05, rel=0.5)
    assert clock._watcher is None


def test_the_loop_itself_never_waits() -> None:
    works: list[Future[Any]] = []
    with ThreadPoolExecutor(1) as device, StepClock(lambda work: work.result) as clock:
        began = time.perf_counter()
        for _ in clock.batches(range(10)):
            works.append(device.submit(time.sleep, 0.02))
            clock.queued(works[-1])
        assert time.perf_counter() - began < 0.1
    assert all(work.done() for work in works)


def test_an_error_in_the_loop_is_not_held_up_by_a_device_that_never_ends() -> None:
    forever: Future[None] = Future()
    with pytest.raises(ValueError, match="loop"), StepClock(lambda work: work.result) as clock:
        clock.queued(forever)
        raise ValueError("loop")
    forever.set_result(None)
