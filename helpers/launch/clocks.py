"""Measure how far the clocks of the hosts are apart, with guaranteed bounds.

No rank leaves an all-reduce before all ranks have entered it. Of two processes, each therefore
leaves after the other has entered. One all-reduce bounds the difference of their clocks from both
sides, and a quick one bounds it tightly. The bounds of several are intersected.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from gpumon.clocks import boot_id

ROUNDS = 20


class Round(NamedTuple):
    """When a process entered and left, by its machine's monotonic clock, in seconds."""

    entered: float
    left: float


class Meetings(NamedTuple):
    """A process's rounds; processes of one boot have one monotonic clock."""

    boot: str | None
    rounds: list[Round]


class Bounds(NamedTuple):
    """By how many seconds a clock is ahead of another, at least and at most."""

    least: float
    most: float

    @property
    def middle(self) -> float:
        return (self.least + self.most) / 2

    @property
    def within(self) -> float:
        """How far the true difference is from the middle at most."""
        return (self.most - self.least) / 2


def meet(together: Callable[[], object], rounds: int = ROUNDS) -> Meetings:
    """Take part in that many rounds of what returns in no process before all have called it."""
    together()  # connections may be made in the first
    found = []
    for _ in range(rounds):
        entered = time.monotonic()
        together()
        found.append(Round(entered, time.monotonic()))
    return Meetings(boot_id(), found)


def ahead(other: Meetings, reference: Meetings) -> Bounds:
    """By how much another process's clock is ahead of the reference's."""
    pairs = list(zip(other.rounds, reference.rounds, strict=True))
    return Bounds(
        max(theirs.entered - ours.left for theirs, ours in pairs),
        min(theirs.left - ours.entered for theirs, ours in pairs),
    )
