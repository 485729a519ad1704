"""Model the time of an all-reduce and of an iteration, fitted on a few ranks.

Seconds are alpha for each message that a rank has to wait for, beta for each byte that it sends,
and gamma for each byte of the array, which is added up and copied:

    T = alpha steps + beta sent + gamma bytes

For a ring of P ranks that is 2 (P - 1) alpha + 2 (P - 1) / P S beta + S gamma. The model is fitted
to each algorithm and each round of measurements separately, and intervals are over rounds. For more
ranks than it was fitted on, it predicts. :func:`judged` compares predictions with measurements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from helpers.all_reduce import grids
from helpers.errors import UserError
from helpers.results import intervals
from helpers.results.intervals import Interval

COLUMNS = ["rows", "columns", "bytes", "round", "seconds"]
"""The columns of a table of measurements of one way."""


@dataclass(frozen=True)
class Model:
    """A way's law as each round found it.

    each: (rounds, 3), alpha in seconds a step, beta and gamma in seconds a byte; none below 0.
    """

    way: str
    each: np.ndarray

    @property
    def alpha(self) -> Interval:
        return intervals.interval(self.each[:, 0])

    @property
    def beta(self) -> Interval:
        return intervals.interval(self.each[:, 1])

    @property
    def gamma(self) -> Interval:
        return intervals.interval(self.each[:, 2])

    def in_rounds(self, shape: grids.Shape, nbytes: float) -> np.ndarray:
        """Seconds of an all-reduce, (rounds,)."""
        found: np.ndarray = self.each @ terms(self.way, shape, nbytes)
        return found

    def seconds(self, shape: grids.Shape, nbytes: float) -> Interval:
        """Seconds of an all-reduce of so many bytes over a grid of this shape."""
        return intervals.interval(self.in_rounds(shape, nbytes))


def terms(way: str, shape: grids.Shape, nbytes: float) -> np.ndarray:
    """What a rank waits for, sends and has: steps, bytes sent, bytes.

    ``way`` is one of ``NAMES`` or ``LIBRARIES`` of ``helpers.all_reduce.grids``. Over a grid all
    ways send as much as a ring, 2 (P - 1) / P of the array; what differs is in how many steps.
    MPI's own are counted as those of recursive doubling, though MPI may choose others by size, and
    the libraries' as those of a ring.
    """
    rows, columns = shape
    ranks = rows * columns
    if way in grids.OVER_GRIDS:
        steps = 2 * (columns - 1) + 2 * (rows - 1)
    else:
        steps = 2 * (math.ceil(math.log2(ranks)) if way == "plain" else ranks - 1)
    return np.array([steps, 2 * (ranks - 1) / ranks * nbytes, nbytes])


def fit(way: str, measured: pd.DataFrame) -> Model:
    """The law of one way that comes closest in every round, in relative terms.

    ``measured`` has ``COLUMNS``, at least two numbers of ranks, and small and large messages.

    Raises:
        UserError: the measurements cannot tell alpha, beta and gamma from each other.
    """
    too_few = (
        f"these measurements of {way} cannot tell latency, sending and adding from each other: "
        "give two numbers of ranks, each with small and large messages"
    )
    if measured.empty:
        raise UserError(too_few)
    each = []
    for _, found in measured.groupby("round"):
        shapes = found[COLUMNS[:3]].to_numpy(float)
        law = np.array([terms(way, (int(r), int(c)), nbytes) for r, c, nbytes in shapes])
        scaled = law / np.abs(law).max(0, initial=0.0, where=law != 0, keepdims=True).clip(1e-300)
        if np.linalg.matrix_rank(scaled, tol=1e-6) < law.shape[1]:
            raise UserError(too_few)
        each.append(closest(law, found["seconds"].to_numpy(float)))
    return Model(way, np.array(each))


def closest(law: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """The factors, none below 0, that come closest in relative terms; ``seconds`` are above 0.

    ``law`` is (measurements, factors), what each is to be multiplied with.
    """
    from scipy.optimize import nnls  # takes a second, which most reports need not wait

    units = law.max(0)  # a step against millions of bytes
    found: np.ndarray = nnls(law / units / seconds[:, None], np.ones(len(seconds)))[0] / units
    return found


def judged(model: Model, measured: pd.DataFrame) -> pd.DataFrame:
    """The model against measurements that it was not fitted on, a row a grid and size.

    Columns: rows, columns, bytes, measured (the median of rounds, seconds), model (seconds) and
    error, that of the model relative to what was measured.
    """
    keys = COLUMNS[:3]
    found = measured.groupby(keys)["seconds"].median().rename("measured").reset_index()
    said = [
        model.seconds((row["rows"], row["columns"]), row["bytes"]).mean
        for row in found.to_dict("records")
    ]
    return found.assign(model=said, error=np.array(said) / found["measured"] - 1)


@dataclass(frozen=True)
class Verdict:
    """What a model of fewer ranks said of the most ranks, and what they took."""

    model: Model
    errors: pd.DataFrame
    """What :func:`judged` returns."""
    a_step: pd.Series
    """Seconds that a step of the smallest message took, by number of ranks; medians.

    The law has one alpha for all of them: where this grows with the ranks, it cannot hold.
    """

    @property
    def worst(self) -> float:
        return float(self.errors["error"].abs().max())

    def within(self, limit: float) -> bool:
        return self.worst <= limit


def verdict(way: str, measured: pd.DataFrame) -> Verdict:
    """Fit a way to all numbers of ranks but the largest, and judge it on that.

    Of the ways over grids both are of the grids that are nearest to square, which more ranks would
    have too. ``measured`` has ``COLUMNS`` and ranks.

    Raises:
        UserError: the measurements of fewer ranks do not allow it.
    """
    if way in grids.OVER_GRIDS:
        shapes = zip(measured["rows"], measured["columns"], strict=True)
        fits = [grids.squarest(rows * columns) == (rows, columns) for rows, columns in shapes]
        measured = measured[fits]
    few = measured["ranks"] < measured["ranks"].max()
    model = fit(way, measured[few])
    smallest = measured[measured["bytes"] == measured["bytes"].min()]
    steps = [
        terms(way, (int(r), int(c)), 0)[0] for r, c in smallest[["rows", "columns"]].to_numpy()
    ]
    a_step = (smallest["seconds"] / steps).groupby(smallest["ranks"]).median()
    return Verdict(model, judged(model, measured[~few]), a_step)


def jitter(steps: ArrayLike, ranks: int) -> float:
    """By how much the slowest of so many ranks is expected to exceed the mean, in seconds.

    All wait for it. Ranks are taken to be alike and independent: the expected maximum of so many
    draws from the measured seconds of ``steps``.
    """
    ordered = np.sort(np.asarray(steps, float))
    below = np.arange(len(ordered) + 1) / len(ordered)
    return float((ordered * np.diff(below**ranks)).sum() - ordered.mean())


def iteration(
    compute: ArrayLike, all_reduce: ArrayLike, overlap: float = 0.0, jitter: float = 0.0
) -> np.ndarray:
    """Seconds of an iteration in each round: T = Tc + max(0, Tar - overlap) + jitter.

    A rank computes for Tc, Tar is the all-reduce alone, of which the backward pass hides the
    overlap, and the jitter is that of :func:`jitter`.
    """
    exposed = np.maximum(0.0, np.asarray(all_reduce, float) - overlap)
    found: np.ndarray = np.asarray(compute, float) + exposed + jitter
    return found


def efficiency(
    steps: ArrayLike, all_reduce: ArrayLike, ranks: int, overlap: float = 0.0
) -> Interval:
    """The share of so many ranks' time that is computing: 1 is perfect.

    ``steps`` are seconds of one rank without an all-reduce; the rest is as in :func:`iteration`.
    """
    compute = float(np.mean(np.asarray(steps, float)))
    return intervals.interval(
        compute / iteration(compute, all_reduce, overlap, jitter(steps, ranks))
    )
