"""Figures over phases: every sample weighs as long as it held, within the phase's own edges.

A plain mean of samples is wrong when samples come late or a phase is shorter than the interval;
a value's weight here is the time between its sample and the next that lies inside the phase.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpumon.recording import Floats

Span = tuple[float, float]


def union(spans: Sequence[Span]) -> list[Span]:
    """Spans joined where they overlap or touch, in order."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def weights(times: Floats, end: float, spans: Sequence[Span]) -> Floats:
    """Seconds for which each sample held inside the spans (joined, in order); shape (n,).

    The first sample also stands for the moment before it, since the start.
    """
    if not len(times) or not spans:
        return np.zeros(len(times))
    held = np.append(times, max(end, times[-1]))
    held[0] = min(held[0], 0.0)
    return inside(held, spans)


def inside(edges: Floats, spans: Sequence[Span]) -> Floats:
    """Seconds of each stretch between two edges that lie inside the spans (joined, in order)."""
    borders = np.array(spans, dtype=float).ravel()
    lengths = np.diff(borders)
    lengths[1::2] = 0.0
    covered = np.concatenate([[0.0], np.cumsum(lengths)])
    return np.diff(np.interp(edges, borders, covered))


def mean(values: Floats, seconds: Floats) -> float:
    """Mean over time; NaN where nothing is known. Time without a value does not count."""
    known = ~np.isnan(values) & (seconds > 0)
    total = seconds[known].sum()
    return float((values[known] * seconds[known]).sum() / total) if total > 0 else float("nan")


def quantile(values: Floats, seconds: Floats, share: float) -> float:
    """The value that was not exceeded for ``share`` of the time."""
    known = ~np.isnan(values) & (seconds > 0)
    if not known.any():
        return float("nan")
    order = np.argsort(values[known], kind="stable")
    reached = np.cumsum(seconds[known][order])
    place = int(np.searchsorted(reached, share * reached[-1] * (1 - 1e-12)))
    return float(values[known][order][min(place, len(order) - 1)])


def share_below(values: Floats, seconds: Floats, threshold: float) -> float:
    """Percent of the known time in which the value was under the threshold."""
    below = np.where(np.isnan(values), np.nan, (values < threshold).astype(float))
    return 100 * mean(below, seconds)


def peak(values: Floats, seconds: Floats) -> float:
    """The highest value that held at any time inside; NaN where nothing is known."""
    known = values[~np.isnan(values) & (seconds > 0)]
    return float(known.max()) if len(known) else float("nan")


def growth(
    times: Floats, counter: Floats, spans: Sequence[Span], longest: float
) -> tuple[float, float]:
    """How much a counter grew inside the spans, and the seconds of them that this covers.

    Between two readings it grows evenly; where they are more than ``longest`` seconds apart, how it
    grew is not known. NaN where nothing is.
    """
    known = ~np.isnan(counter)
    apart = np.diff(times[known])
    seconds = np.where(apart <= longest, inside(times[known], spans), 0.0)
    covered = float(seconds.sum())
    if covered <= 0:
        return float("nan"), 0.0
    counted = seconds > 0
    rates = np.diff(counter[known])[counted] / apart[counted]
    return float((rates * seconds[counted]).sum()), covered


def integral(values: Floats, seconds: Floats) -> tuple[float, float]:
    """Value times time, such as joules from watts, and the seconds that it covers; NaN for none."""
    known = ~np.isnan(values)
    covered = float(seconds[known].sum())
    if covered <= 0:
        return float("nan"), 0.0
    return float((values[known] * seconds[known]).sum()), covered


def imbalance(figures: Sequence[float]) -> float:
    """Percent by which the lowest device stays under the highest; NaN for fewer than two."""
    known = [figure for figure in figures if not np.isnan(figure)]
    if len(known) < 2 or max(known) <= 0:
        return float("nan")
    return 100 * (max(known) - min(known)) / max(known)
