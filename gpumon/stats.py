"""This module computes time-weighted statistics of samples over phases.

A plain mean of samples is wrong when samples come late or a phase is shorter than the interval;
a value's weight here is the time between its sample and the next that lies inside the phase.
Without NumPy, which a recorder need not have; only what lies inside a phase is looked at.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from math import isnan, nan
from typing import Any

Span = tuple[float, float]
Weights = Sequence[tuple[int, float]]
"""The samples that held inside a phase, in order: the place of each, and its seconds above 0."""
Known = Mapping[float, float]
"""The known values that held inside a phase, each with its seconds above 0, lowest first."""
LONGEST = 3
"""Sampling intervals."""
LATE = 1.05
"""Samples come a little late, which alone must not make a gap."""
UNNOTED = "there is no sample"


def union(spans: Sequence[Span]) -> list[Span]:
    """Spans joined where they overlap or touch, in order."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def weights(times: Sequence[float], end: float, spans: Sequence[Span]) -> Weights:
    """The samples that held inside the spans (joined, in order), and for how long.

    The first sample also stands for the moment before it, since the start.
    """
    if not len(times):
        return []
    edges = [*times, max(end, times[-1])]
    edges[0] = min(edges[0], 0.0)
    return inside(edges, spans)


def inside(edges: Sequence[float], spans: Sequence[Span]) -> Weights:
    """The stretches from one edge to the next that lie inside the spans (joined, in order)."""
    found: dict[int, float] = {}
    for start, end in spans:
        place = max(0, bisect_right(edges, start) - 1)
        while place < len(edges) - 1 and edges[place] < end:
            seconds = min(edges[place + 1], end) - max(edges[place], start)
            if seconds > 0:
                found[place] = found.get(place, 0.0) + seconds
            place += 1
    return list(found.items())


def known(values: Sequence[float], weights: Weights) -> Known:
    """The values that held inside and are known. Time without a value does not count.

    Most values come again and again, so that what is worked out from them is short work.
    """
    found: dict[float, float] = {}
    for place, seconds in weights:
        if not isnan(value := values[place]):
            found[value] = found.get(value, 0.0) + seconds
    return dict(sorted(found.items()))


def mean(known: Known) -> float:
    """Mean over time; NaN where nothing is known."""
    amount, seconds = integral(known)
    return amount / seconds if seconds else nan


def quantile(known: Known, share: float) -> float:
    """The value that was not exceeded for ``share`` of the time; NaN where nothing is known."""
    wanted = share * sum(known.values()) * (1 - 1e-12)
    reached = 0.0
    for value, seconds in known.items():
        reached += seconds
        if reached >= wanted:
            return value
    return peak(known)


def share_below(known: Known, threshold: float) -> float:
    """Percent of the time in which the value was under the threshold."""
    below = sum(seconds for value, seconds in known.items() if value < threshold)
    return 100 * below / sum(known.values()) if known else nan


def peak(known: Known) -> float:
    """The highest value that held at any time; NaN where nothing is known."""
    return max(known, default=nan)


def integral(known: Known) -> tuple[float, float]:
    """Value times time, such as joules from watts, and the seconds that it covers; NaN for none."""
    amount = sum(value * seconds for value, seconds in known.items())
    return (amount, sum(known.values())) if known else (nan, 0.0)


def growth(
    times: Sequence[float], counter: Sequence[float], spans: Sequence[Span], longest: float
) -> tuple[float, float]:
    """How much a counter grew inside the spans, and the seconds of them that this covers.

    times, counter: its readings, none of them NaN. Between two it grows evenly; where they are more
    than ``longest`` seconds apart, how it grew is not known. NaN where nothing is.
    """
    grown = covered = 0.0
    for place, seconds in inside(times, spans):
        distance = times[place + 1] - times[place]
        if distance <= longest:
            grown += (counter[place + 1] - counter[place]) / distance * seconds
            covered += seconds
    return (grown, covered) if covered else (nan, 0.0)


def imbalance(figures: Sequence[float]) -> float:
    """Percent by which the lowest device stays under the highest; NaN for fewer than two."""
    known = [figure for figure in figures if not isnan(figure)]
    if len(known) < 2 or max(known) <= 0:
        return nan
    return 100 * (max(known) - min(known)) / max(known)


def gap_threshold(interval: float) -> float:
    """Seconds between two samples that are no gap yet."""
    return LONGEST * LATE * interval


def find_gaps(
    times: Sequence[float], end: float, interval: float, noted: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The gaps between 0 and ``end`` as events (``t``, ``seconds``, ``reason``), in order.

    A value stands for the time until the next sample, but for ``LONGEST`` intervals at most. Where
    it would stand for more, the table gets a row of NaN one interval after the last sample: charts
    break their lines there, and no sum and no mean counts that time.

    noted: the events in which the sampler says that it lost samples, and why; these are gaps
    however short. Other gaps are found by their length.
    """
    edges = [0.0, *times, end]
    wide = {
        place
        for place, (before, after) in enumerate(zip(edges, edges[1:]))
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
            "reason": "; ".join(reasons.get(place, [UNNOTED])),
        }
        for place, start in sorted(starts.items())
    ]
