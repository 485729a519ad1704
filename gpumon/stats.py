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
    edges = np.array([edge for span in spans for edge in span])
    lengths = np.diff(edges)
    lengths[1::2] = 0.0
    covered = np.concatenate([[0.0], np.cumsum(lengths)])
    held = np.append(times, max(end, times[-1]))
    held[0] = min(held[0], 0.0)
    reached = np.interp(held, edges, covered)
    return np.diff(reached)


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


def difference(times: Floats, counter: Floats, spans: Sequence[Span]) -> float:
    """How much a counter grew inside the spans, interpolated at their edges."""
    known = ~np.isnan(counter)
    if not known.any():
        return float("nan")
    at = np.interp(np.array(spans).ravel(), times[known], counter[known])
    return float((at[1::2] - at[0::2]).sum())


def integral(values: Floats, seconds: Floats) -> float:
    """Value times time, such as joules from watts; NaN where nothing is known."""
    known = ~np.isnan(values)
    return float((values[known] * seconds[known]).sum()) if known.any() else float("nan")


def imbalance(figures: Sequence[float]) -> float:
    """Percent by which the lowest device stays under the highest; NaN for fewer than two."""
    known = [figure for figure in figures if not np.isnan(figure)]
    if len(known) < 2 or max(known) <= 0:
        return float("nan")
    return 100 * (max(known) - min(known)) / max(known)
