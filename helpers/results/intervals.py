"""Compute means, ratios and times to a target with intervals, for the studies' sentences.

All intervals are at 95 %, over runs or interleaved rounds: Student's t for means, order statistics
for medians. They cover chance in weights, order and the machine's speed, not the choice of images,
network or machine.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from helpers.training import measurement_rounds


class Interval(NamedTuple):
    """A mean (or median) and the ends of its 95 % interval; NaN if there is no interval."""

    mean: float
    low: float
    high: float

    def text(self, form: str = ".2f") -> str:
        """``1.40 (1.20 to 1.63)``, or ``1.40 (no interval)``; a ``%`` stands apart."""
        middle, low, high = (f"{end:{form}}".replace("%", " %") for end in self)
        return f"{middle} ({'no interval' if math.isnan(self.low) else f'{low} to {high}'})"


def interval(values: ArrayLike) -> Interval:
    """The mean of at least one value; without ends if there is only one."""
    found = np.asarray(values, float)
    middle = float(found.mean())
    if len(found) < 2:
        return Interval(middle, math.nan, math.nan)
    half = half_width(found)
    return Interval(middle, middle - half, middle + half)


def half_width(values: np.ndarray, tail: float = 0.025) -> float:
    """Half the width of the interval of a mean of at least two values, by Student's t."""
    from scipy.special import stdtrit  # takes half a second, which no plan need wait for

    count = len(values)
    return float(stdtrit(count - 1, 1 - tail) * values.std(ddof=1) / math.sqrt(count))


def of_median(values: Sequence[float]) -> Interval:
    """See :func:`measurement_rounds.median_of`."""
    return Interval(*measurement_rounds.median_of(values))


def ratio(ones: ArrayLike, others: ArrayLike) -> Interval:
    """The geometric mean of the ratios of pairs (same seed or same round), all above 0."""
    logs = np.log(np.asarray(ones, float) / np.asarray(others, float))
    return Interval(*(math.exp(end) for end in interval(logs)))


def excludes(found: Interval, value: float) -> bool:
    """Whether the interval excludes a value; False if there is no interval."""
    return found.low > value or found.high < value


def change(found: Interval) -> str:
    """A ratio as a change: ``-32 % (-41 to -21)``; says if the change is not significant."""
    percents = [f"{100 * (end - 1):+.0f}" for end in found if not math.isnan(end)]
    if len(percents) == 1:
        return f"{percents[0]} %, one round"
    text = f"{percents[0]} % ({percents[1]} to {percents[2]})"
    return text if excludes(found, 1.0) else f"{text}: no significant difference"


def updates_to(target: float, updates: ArrayLike, values: ArrayLike) -> float:
    """The number of updates after which a curve first reaches ``target``, by linear interpolation.

    Infinite if it never does.
    """
    at, heights = np.asarray(updates, float), np.asarray(values, float)
    first = int(np.argmax(heights >= target))
    if not heights[first] >= target:
        return math.inf
    near = slice(max(first - 1, 0), first + 1)
    return float(np.interp(target, heights[near], at[near]))


def soon(alone: ArrayLike, others: ArrayLike) -> str:
    """How many times as soon ``others`` reach the target as ``alone`` (:func:`updates_to`).

    Pairs are compared. There is an interval if all runs reached it; otherwise the median, in which
    a run that never did counts as the latest.
    """
    ours, theirs = np.asarray(others, float), np.asarray(alone, float)
    if not np.isfinite(theirs).all():
        return "not comparable, because not all runs of the other side reached the target"
    missing = int(np.isinf(ours).sum())
    if not missing:
        return f"{ratio(theirs, ours).text('.1f')} times as soon"
    said = f"{missing} of {len(ours)} runs never arrived"
    if 2 * missing >= len(ours):
        return f"{said}, so there is no time to give"
    return f"{np.median(theirs / ours):.1f} times as soon (median; no interval, {said})"
