"""This module computes time-weighted statistics of samples over phases.

A value's weight is the time between its sample and the next that lies inside the phase.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from math import isnan, nan
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpumon.trace_files import gap_threshold

Floats = npt.NDArray[np.float64]
Stretch = tuple[float, float]


class Weights(NamedTuple):
    """The samples that held inside a phase, in order: their places, and seconds above 0."""

    places: npt.NDArray[np.intp]
    seconds: Floats


class Known(NamedTuple):
    """The known values that held inside a phase, and for how many seconds each; none: NaN."""

    values: Floats
    seconds: Floats

    @property
    def total(self) -> float:
        """The seconds that are known."""
        return float(self.seconds.sum())

    def integral(self) -> float:
        """Value times time, such as joules from watts."""
        return float(self.values @ self.seconds) if len(self.values) else nan

    def mean(self) -> float:
        """Mean over time."""
        return self.integral() / self.total if len(self.values) else nan

    def quantile(self, share: float) -> float:
        """The value that was not exceeded for ``share`` of the time."""
        if not len(self.values):
            return nan
        order = np.argsort(self.values)
        reached = np.cumsum(self.seconds[order])
        place = int(np.searchsorted(reached, share * reached[-1] * (1 - 1e-12)))
        return float(self.values[order[min(place, len(order) - 1)]])

    def share_below(self, threshold: float) -> float:
        """Percent of the time in which the value was under the threshold."""
        below = float(self.seconds[self.values < threshold].sum())
        return 100 * below / self.total if len(self.values) else nan

    def peak(self) -> float:
        """The highest value that held at any time."""
        return float(self.values.max()) if len(self.values) else nan


def union(stretches: Sequence[Stretch]) -> list[Stretch]:
    """Stretches joined where they overlap or touch, in order."""
    joined: list[Stretch] = []
    for start, end in sorted(stretches):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def weights(times: npt.ArrayLike, end: float, stretches: Sequence[Stretch]) -> Weights:
    """The samples that held in the stretches (joined, in order); the first also before itself."""
    edges = np.array(times, float)
    if len(edges):
        edges = np.append(edges, max(end, edges[-1]))
        edges[0] = min(edges[0], 0.0)
    return inside(edges, stretches)


def inside(edges: Floats, stretches: Sequence[Stretch]) -> Weights:
    """The pieces between two edges that lie inside the stretches (joined, in order)."""
    places, seconds = [np.empty(0, np.intp)], [np.empty(0)]
    for start, end in stretches:
        first = max(0, int(np.searchsorted(edges, start, "right")) - 1)
        last = int(np.searchsorted(edges[:-1], end))
        places.append(np.arange(first, last))
        until = np.minimum(edges[first + 1 : last + 1], end)
        seconds.append(until - np.maximum(edges[first:last], start))
    found, where = np.unique(np.concatenate(places), return_inverse=True)
    held = np.bincount(where, np.concatenate(seconds), minlength=len(found)).astype(float)
    return Weights(found[held > 0], held[held > 0])


def known(values: Floats, weights: Weights) -> Known:
    """The values that held inside and are known. Time without a value does not count."""
    held = values[weights.places]
    there = ~np.isnan(held)
    return Known(held[there], weights.seconds[there])


def growth(
    times: Floats, counter: Floats, stretches: Sequence[Stretch], longest: float
) -> tuple[float, float]:
    """How much a counter grew inside the stretches, and the seconds of them that this covers.

    Between two readings it grows evenly; it is not known where they are ``longest`` seconds apart.
    """
    places, seconds = inside(times, stretches)
    distance = np.diff(times)[places]
    near = distance <= longest
    if not near.any():
        return nan, 0.0
    rates = np.diff(counter)[places[near]] / distance[near]
    return float(rates @ seconds[near]), float(seconds[near].sum())


def imbalance(values: Sequence[float]) -> float:
    """Percent by which the lowest device stays under the highest; NaN for fewer than two."""
    known = [value for value in values if not isnan(value)]
    many = len(known) > 1 and max(known) > 0
    return 100 * (max(known) - min(known)) / max(known) if many else nan


def find_gaps(
    times: Sequence[float], end: float, interval: float, noted: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The gaps between 0 and ``end`` as events (``t``, ``seconds``, ``reason``), in order.

    A value stands for the time until the next sample, but for three intervals at most; a gap begins
    one interval after the last sample. noted: the events in which the sampler says that it lost
    samples, and why; these are gaps however short.
    """
    edges = [0.0, *times, end]
    wide = {
        place
        for place, (before, after) in enumerate(itertools.pairwise(edges))
        if after - before > gap_threshold(interval)
    }
    reasons: dict[int, dict[str, None]] = {}
    starts = {place: edges[place] + interval if place else 0.0 for place in wide}
    for event in noted:
        place = bisect_right(edges, event["t"]) - 1
        if 0 <= place < len(edges) - 1:
            starts[place] = min(starts.get(place, event["t"]), event["t"])
            reasons.setdefault(place, {})[event["reason"]] = None
    return [
        {
            "t": round(start, 4),
            "event": "gap",
            "seconds": round(edges[place + 1] - start, 4),
            "reason": "; ".join(reasons.get(place, ["there is no sample"])),
        }
        for place, start in sorted(starts.items())
    ]
