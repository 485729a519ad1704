import time

import pytest

from helpers.timing import Stopwatch


def test_waits_for_the_device_at_both_ends_only() -> None:
    calls: list[float] = []

    def synchronize() -> None:
        calls.append(time.perf_counter())
        time.sleep(0.05)  # a device still busy when the clock is read

    with Stopwatch(synchronize) as watch:
        assert len(calls) == 1
    assert len(calls) == 2
    # The wait before the start is not counted, the wait at the end is.
    assert 0.05 <= watch.seconds < 0.09
    assert watch.rate(100) == pytest.approx(100 / watch.seconds)


def test_an_error_inside_does_not_wait_for_a_broken_device() -> None:
    calls = 0

    def synchronize() -> None:
        nonlocal calls
        calls += 1

    with pytest.raises(RuntimeError), Stopwatch(synchronize):
        raise RuntimeError
    assert calls == 1
