"""The all-reduce alone: what is measured, and what bus bandwidth it comes to."""

from types import ModuleType
from typing import Any

import pytest
import records

from helpers import record
from helpers.errors import UserError
from helpers.frameworks.interface import AllReduce
from helpers.training import (
    bus_bandwidth,
    step_clock,
)
from helpers.training.bus_bandwidth import Measured
from helpers.training.world import World

FOUR = World(0, 4, ("a device",), "cpu", nodes=4)


def test_bus_bandwidth_is_nccl_tests() -> None:
    """Each of 4 devices sends 2 * 3 / 4 of the bytes."""
    found = bus_bandwidth.as_record(
        Measured([0.5, 0.4, 0.6, 0.5, 0.45, 0.55], 8_000_000, "gloo"), devices=4, interface="eth0"
    )
    assert found["seconds"] == 0.5 and found["interval"] == [0.4, 0.6] and found["rounds"] == 6
    assert found["bus_bytes_per_second"] == pytest.approx(1.5 * 8e6 / 0.5)
    assert bus_bandwidth.in_words(found) == (
        "8.0 MB of gradients over gloo on eth0 in 0.5 s (0.4 to 0.6, 6 rounds), "
        "192.0 Mbit/s of bus bandwidth"
    )


@pytest.mark.parametrize(("each", "count"), [(0.5, 1), (0.02, 10), (1e-9, 200)])
def test_a_round_lasts_long_enough_and_is_the_slowest_processs(
    each: float, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Time:
        now = 0.0

        def perf_counter(self) -> float:
            return self.now

    time, taken, asked = Time(), [], []
    monkeypatch.setattr(step_clock, "time", time)

    def once() -> None:
        taken.append(time.now)
        time.now += 5.0 if len(taken) in (1, 3) else each  # the first of each turn

    def slowest(seconds: float, devices: Any) -> float:
        asked.append(seconds)
        return seconds * (1 if len(asked) == 1 else 2)  # another process took twice as long

    framework: Any = ModuleType("somebodys_framework")
    framework.completion, framework.slowest = lambda result: None, slowest
    assert bus_bandwidth.measure(FOUR, framework, None) is None, "it has not said how"
    framework.gradient_all_reduce = lambda replica, devices: AllReduce(once, 100, "rings")
    found = bus_bandwidth.measure(FOUR, framework, None)
    assert found is not None and (found.bytes, found.by) == (100, "rings")
    assert found.seconds == pytest.approx([2 * each] * 6)
    assert len(taken) == 2 + 1 + 6 * count
    alone = World(0, 1, ("a device",), "cpu")
    assert bus_bandwidth.measure(alone, framework, None) is None


def test_the_record_takes_what_ranks_measured_and_no_nonsense() -> None:
    all_reduce = bus_bandwidth.as_record(Measured([0.5] * 6, 8, "gloo"), devices=2, interface="lo")
    rank: dict[str, Any] = {"rank": 0, "host": "node0", "data": 0.1, "compute": 0.2}
    world = records.world(virtual=False) | {
        "all_reduce": all_reduce,
        "step_parts": [rank | {"all_reduce": None, "update": 0.01}],
        "clocks": [{"host": "node1", "ahead": -0.1, "within": 0.001}],
    }
    content = records.make("PyTorch")
    record.check(content | {"cluster": world})
    for name, wrong in (
        ("all_reduce", all_reduce | {"seconds": 0}),
        ("step_parts", [rank | {"all_reduce": None}]),
        ("clocks", [{"host": "node1", "ahead": -0.1, "within": -1}]),
    ):
        with pytest.raises(UserError, match=f"cluster/{name}"):
            record.check(content | {"cluster": world | {name: wrong}})
