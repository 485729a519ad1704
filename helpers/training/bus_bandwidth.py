"""Measure how fast the ranks of a run all-reduce gradients.

The measurement uses the framework's own all-reduce on as many bytes as this model's gradients have,
with no computation at the same time. *Bus bandwidth* is defined as in nccl-tests: 2 (n - 1) / n
times the bytes, divided by the seconds. Each of n devices sends so much in a ring, so the figure
can be compared with the speed of a link for any n.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean, median
from types import ModuleType
from typing import Any, NamedTuple

from helpers.frameworks.interface import AllReduce
from helpers.training.step_clock import StepClock
from helpers.training.world import World

ROUNDS = 6
"""As in section 11: minimum and maximum of six enclose the median with a probability of 97 %."""
ROUND_SECONDS = 0.2
"""How long a round should last; of a slow network it is one all-reduce."""
MOST = 200
"""All-reduces of a round."""


class Measured(NamedTuple):
    """The mean seconds of an all-reduce in each round, those of the process it took longest."""

    seconds: list[float]
    bytes: int
    by: str


def measure(world: World, framework: ModuleType, replica: Any) -> Measured | None:
    """Take the rounds; None with one device, or where the framework does not say how.

    All processes must call it.
    """
    all_reduce = getattr(framework, "gradient_all_reduce", None)
    if world.size == 1 or all_reduce is None:
        return None
    reduction: AllReduce = all_reduce(replica, world.devices)

    def slowest(seconds: float) -> float:
        return float(framework.slowest(seconds, world.devices))

    def seconds_of_each(count: int) -> list[float]:
        """The seconds of all but the first, in which connections may be made."""
        with StepClock(framework.completion) as clock:
            for _ in range(count + 1):
                clock.queued(reduction.once())
        return clock.step_seconds

    # All have to come to the same number.
    count = max(1, min(MOST, round(ROUND_SECONDS / slowest(seconds_of_each(1)[0]))))
    each = seconds_of_each(ROUNDS * count)
    rounds = [slowest(fmean(each[first : first + count])) for first in range(0, len(each), count)]
    return Measured(rounds, reduction.bytes, reduction.by)


def as_record(found: Measured, *, devices: int, interface: str) -> dict[str, Any]:
    """The record's ``cluster.all_reduce``."""
    seconds = median(found.seconds)
    return {
        "bytes": found.bytes,
        "rounds": len(found.seconds),
        "seconds": seconds,
        "interval": [min(found.seconds), max(found.seconds)],
        "bus_bytes_per_second": 2 * (devices - 1) / devices * found.bytes / seconds,
        "over": f"{found.by} on {interface}",
    }


def in_words(found: Mapping[str, Any]) -> str:
    """``28.1 MB of gradients over gloo on eth0 in 2.31 s (2.29 to 2.35), ...``; of a record."""
    low, high = found["interval"]
    megabits = 8e-6 * found["bus_bytes_per_second"]
    return (
        f"{found['bytes'] / 1e6:,.1f} MB of gradients over {found['over']} in "
        f"{found['seconds']:.3g} s ({low:.3g} to {high:.3g}, {found['rounds']} rounds), "
        f"{megabits:,.1f} Mbit/s of bus bandwidth"
    )
