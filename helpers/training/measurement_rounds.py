"""Interleave a notebook's measurements, so that a slow minute affects all of them."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from statistics import median
from typing import Any

TRAINED = ("files", "synthetic")
"""The measurements that train."""
REPEAT_SECONDS = 1.0
"""The least length of a measurement of training."""
STEPS, STEPS_SECONDS = 10, 2.0
"""A measurement has so many steps if these take less than so many seconds."""
LOADER_SECONDS = 0.3
"""The least length of a measurement of the loader alone, by the first ones."""
LEAST_ROUNDS = 6
"""Fewer have no 95 % interval of the median."""
NARROW, MOST_SECONDS = 0.05, 60.0
"""More rounds are taken until the interval of each median is narrower than this part of it, as long
as so many seconds in all can be expected to suffice."""
PHASES = {
    "files": "files",
    "synthetic": "synthetic",
    "no_allreduce": "without all-reduce",
    "loader": "loader alone",
}
# The loader comes right before the files: it leaves nothing read ahead, which would make the
# first steps on files look as if loading cost nothing.
_ORDERS = (
    ("loader", "files", "synthetic", "no_allreduce"),
    ("no_allreduce", "synthetic", "loader", "files"),
)

Measurement = Callable[[int], float]
"""Takes that many steps, after one more that is not counted; the mean seconds of a step."""
Seconds = dict[str, list[float]]
"""By kind, the seconds of a step over all devices (of the loader: of a global batch), by round."""


def steps_of_a_repeat(seconds: float) -> int:
    """The number of steps in a measurement, if a step takes this many seconds."""
    enough = math.ceil(REPEAT_SECONDS / seconds)
    return max(enough, STEPS) if STEPS * seconds < STEPS_SECONDS else enough


def median_of(values: Sequence[float]) -> tuple[float, float, float]:
    """The median, and the ends of its 95 % confidence interval, by order statistics.

    Source: https://en.wikipedia.org/wiki/Order_statistic, confidence intervals of quantiles.
    """
    ordered, count = sorted(values), len(values)
    left_out, chance = 0, 0.5**count  # that so many or fewer values are below the true median
    while (chance := chance + math.comb(count, left_out + 1) * 0.5**count) <= 0.025:
        left_out += 1
    return median(ordered), ordered[left_out], ordered[-1 - left_out]


def another(seconds: Seconds, spent: float) -> bool:
    """Whether to measure one more round: an interval narrows with the square root of the rounds."""
    taken = len(seconds["files"])
    each = [median_of(seconds[kind]) for kind in TRAINED]
    width = max((high - low) / middle for middle, low, high in each)
    needed = max(taken + 1, taken * (width / NARROW) ** 2)
    return width > NARROW and spent * needed / taken <= MOST_SECONDS


def interleaved(
    phase: Callable[..., AbstractContextManager[Any]],
    measurements: Mapping[str, Measurement],
    *,
    steps: Mapping[str, int],
    images: int,
    first: Callable[[bool], bool],
    clock: Callable[[], float] = time.monotonic,
) -> Seconds:
    """The seconds of a step, by measurement and round.

    Args:
        phase: ``monitor.phase``.
        measurements: by kind; one device has none without all-reduce.
        steps: that a measurement counts, by kind.
        images: of this process in a step of training, which ``phase`` counts.
        first: returns rank 0's value in every process, which must take equally many rounds.
    """
    seconds: Seconds = {kind: [] for kind in measurements}
    start, number = clock(), 0
    while number < LEAST_ROUNDS or first(another(seconds, clock() - start)):
        for kind in _ORDERS[number % 2]:
            if kind in measurements:
                trained = {"items": (steps[kind] + 1) * images} if kind in TRAINED else {}
                with phase(PHASES[kind], **trained):
                    seconds[kind].append(measurements[kind](steps[kind]))
        number += 1
    return seconds
