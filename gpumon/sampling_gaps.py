"""This module finds the gaps in a trace, for which there are no samples.

A value stands for the time until the next sample, but never for more than ``LONGEST`` intervals.
Where it would, the table gets a row of NaN, one interval after the last sample: the charts break
their lines there, and no sum and no mean counts that time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from gpumon.compat import pairwise

LONGEST = 3
"""Sampling intervals."""
LATE = 1.05
"""Samples come a little late, which alone must not make a gap."""
UNNOTED = "there is no sample"


def gap_threshold(interval: float) -> float:
    """Seconds between two samples that are no gap yet."""
    return LONGEST * LATE * interval


def find_gaps(
    times: Sequence[float], end: float, interval: float, noted: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The gaps between 0 and ``end`` as events (``t``, ``seconds``, ``reason``), in order.

    noted: the events in which the sampler says that it lost samples, and why; these are gaps
    however short. Other gaps are found by their length.
    """
    edges = [0.0, *times, end]
    wide = {
        place
        for place, (before, after) in enumerate(pairwise(edges))
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
