"""The parts of each rank's step: loading, computing, waiting for gradients, the update.

A notebook's ``sync_seconds`` tells in what way its replicas wait. Where that is seen step by step
(:class:`Waited`), a step falls into four parts on this process's own clock. Where the all-reduce is
inside a compiled step, or queued with it, it cannot be seen from outside. It is then None, and
``compute`` includes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import pandas as pd

from helpers.training.step_clock import StepClock

PARTS = ("data", "compute", "all_reduce", "update")
SHOWN = {
    "data": "waiting for data",
    "compute": "computing",
    "all_reduce": "waiting for gradients",
    "update": "update",
}
TOTAL = "all_reduce_total"
"""Beside the parts: how long the all-reduce took, with what computing hid of it."""
Parts = dict[str, float | None]


class Wait(NamedTuple):
    """How long one step of this process waited for gradients; ``until`` when on its clock.

    ``until`` is of ``time.perf_counter``, None where only a device knows. ``total`` is how long its
    all-reduce took, with what computing hid of it.
    """

    seconds: float
    until: float | None = None
    total: float | None = None


class Waited(float):
    """Seconds that the steps of all replicas waited; ``steps`` are those of this process alone."""

    steps: Sequence[Wait] = ()

    @classmethod
    def of(cls, seconds: float, steps: Sequence[Wait]) -> Waited:
        """So many seconds; with them each step's own."""
        found = cls(seconds)
        found.steps = tuple(steps)
        return found


def of_epoch(clock: StepClock, waited: float | None) -> Parts:
    """Median seconds of each part of a step, by its name in ``PARTS``; None where it is not seen.

    Those of the whole all-reduce are in ``TOTAL``, if they are seen.

    Of one epoch, without its first step where there are more.

    Args:
        waited: what the notebook's ``sync_seconds`` gave after it.
    """
    found: dict[str, list[float]] = {part: [] for part in PARTS}
    waits = _waits(clock, waited)
    for number, (since, arrived, done) in enumerate(clock.moments):
        left = done - since
        if arrived is not None:
            found["data"].append(max(0.0, arrived - since))
            left -= found["data"][-1]
        if waits:
            wait = waits[number]
            found["all_reduce"].append(wait.seconds)
            left -= wait.seconds
            if wait.until is not None:
                found["update"].append(max(0.0, done - wait.until))
                left -= found["update"][-1]
        found["compute"].append(left)
    if waits and (totals := [wait.total for wait in waits if wait.total is not None]):
        found[TOTAL] = totals
    return {part: median(each[1:] or each) if each else None for part, each in found.items()}


def _waits(clock: StepClock, waited: float | None) -> Sequence[Wait]:
    """How long each step waited for gradients; empty where it is not seen step by step."""
    waits = waited.steps if isinstance(waited, Waited) else ()
    return waits if len(waits) == clock.steps else ()


def slowest(parts: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The rank that the others wait for: the one with the most work apart from waiting.

    None where there is one rank, or where the waiting is not seen: then all take equally long.

    Args:
        parts: the record's ``cluster.step_parts``.
    """
    if len(parts) < 2 or any(rank["all_reduce"] is None for rank in parts):
        return None
    return max(parts, key=busy)


def busy(rank: Mapping[str, Any]) -> float:
    """Seconds of a step in which a rank did not wait for others."""
    return sum(rank[part] or 0.0 for part in ("data", "compute", "update"))


def hidden_share(total: float, exposed: float) -> float | None:
    """The share of an all-reduce that computing hid, from 0 to 1; None of one that took no time."""
    return min(1.0, max(0.0, 1 - max(0.0, exposed) / total)) if total > 0 else None


def table(parts: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Seconds of a step, a row for each rank; ``parts`` as in :func:`slowest`."""
    rows = {rank["rank"]: {"host": rank["host"]} | _shown(rank) for rank in parts}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("rank")


def in_words(parts: Sequence[Mapping[str, Any]]) -> str:
    """The slowest rank, in a sentence."""
    if len(parts) < 2:
        return ""
    if (found := slowest(parts)) is None:
        return "Which rank is slowest cannot be seen: the all-reduce is inside the step."
    least = min(busy(rank) for rank in parts)
    return (
        f"Slowest rank: {found['rank']} on {found['host']}, busy for {busy(found):.3g} s of a "
        f"step; the quickest for {least:.3g} s."
    )


def _shown(rank: Mapping[str, Any]) -> dict[str, Any]:
    found = {f"{shown} (s)": rank[part] for part, shown in SHOWN.items()}
    total, exposed = rank.get(TOTAL), rank["all_reduce"]
    if total is None or exposed is None:
        return found
    return found | {"all-reduce (s)": total, "of it hidden": hidden_share(total, exposed)}
