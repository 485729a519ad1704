import pytest

from helpers.training.stopwatch import stopwatch


def test_waits_for_the_device_at_both_ends_only(monkeypatch: pytest.MonkeyPatch) -> None:
    now, calls = 0.0, 0
    monkeypatch.setattr("time.perf_counter", lambda: now)

    def synchronize() -> None:
        nonlocal now, calls
        now, calls = now + 0.05, calls + 1  # a device still busy when the clock is read

    with stopwatch(synchronize) as watch:
        assert calls == 1
        now += 0.2
    assert calls == 2
    # The wait before the start is not counted, the wait at the end is.
    assert watch.seconds == pytest.approx(0.25)


def test_an_error_inside_does_not_wait_for_a_broken_device() -> None:
    calls = 0

    def synchronize() -> None:
        nonlocal calls
        calls += 1

    with pytest.raises(RuntimeError), stopwatch(synchronize):
        raise RuntimeError
    assert calls == 1
