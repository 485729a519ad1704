"""This module defines what both charts draw: lanes of lines, and bands of phases.

Both charts (matplotlib's and the interactive one) draw these, so that they say the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from gpumon import stats
from gpumon.recording import Mark
from gpumon.stats import Floats

MOST_LEVELS = 3


@dataclass
class Line:
    """One series as percent of its full scale. kind: how it looks, one of ``style.KINDS``.

    ``values * scale`` is in ``unit``. short: its name at a pointer. note: a figure over what is
    shown. low, high: the range of several devices of which the values are the mean.
    """

    kind: str
    label: str
    values: Floats
    note: str
    scale: float = 1.0
    unit: str = "%"
    short: str = ""
    low: Floats | None = None
    high: Floats | None = None


@dataclass
class Lane:
    """One device, or one run of a comparison.

    times, end: of the lines' values, on the chart's axis. reason: why it has no utilisation. host:
    it is a machine's CPU and memory. marks: moments, what is said there, and in which colour of the
    theme. top: what its highest value is called. phases: of this lane alone. note: one more line at
    its side.
    """

    name: str
    title: str
    subtitle: str
    times: Floats
    end: float
    lines: list[Line] = field(default_factory=list)
    reason: str = ""
    host: bool = False
    marks: list[tuple[float, str, str]] = field(default_factory=list)
    top: str = "100 %"
    phases: list[Mark] | None = None
    note: str = ""


def figure_text(value: float, unit: str) -> str:
    """A mean over what is shown, for the side of a lane; nothing where nothing is known of it."""
    return f"{value:.0f} {unit}" if not math.isnan(value) else f"no figure, {unit}"


def condense(
    times: npt.ArrayLike, values: Floats, end: float, most: int
) -> tuple[Floats, Floats, Floats, Floats]:
    """About ``most`` steps (time, mean, lowest, highest) of a series that has more samples.

    What lasts longer than a step by itself, as a gap may, is one by itself, so that nothing is
    drawn into it.
    """
    times = np.asarray(times, dtype=float)
    if len(times) <= most:
        return times, values, values, values
    edges, width = np.linspace(times[0], end, most + 1, retstep=True)
    held = np.diff(np.append(times, end))
    alone = np.flatnonzero(held > width * 1.000001)
    places = np.unique(np.concatenate([np.searchsorted(times, edges[:-1]), alone, alone + 1]))
    places = places[places < len(times)]
    known = ~np.isnan(values)
    seconds = np.where(known, held, 0.0)
    total = np.add.reduceat(seconds, places)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.add.reduceat(np.where(known, values, 0.0) * seconds, places) / total
    low = np.fmin.reduceat(values, places)
    high = np.fmax.reduceat(values, places)
    return times[places], mean, low, high


def steps(lane: Lane, line: Line, most: int) -> tuple[Floats, Floats, Floats, Floats]:
    """:func:`condense` of a line; the range is that of its devices, where it stands for several."""
    times, mean, low, high = condense(lane.times, line.values, lane.end, most)
    if line.low is not None and line.high is not None:
        low, high = (condense(lane.times, v, lane.end, most)[1] for v in (line.low, line.high))
    return times, mean, low, high


def labels(mark: Mark) -> list[str]:
    """A phase's names, long to short: ``train, epoch 2``, ``train 2``, ``train``."""
    short = mark.name.rsplit("/", 1)[-1]
    if "epoch" not in mark.attributes:
        return [short]
    epoch = mark.attributes["epoch"]
    return [f"{short}, epoch {epoch}", f"{short} {epoch}", short]


def merged_marks(marks: Sequence[Mark], levels: int = MOST_LEVELS) -> list[Mark]:
    """The outer marks, with those of one name that overlap (several processes) made one."""
    groups: dict[str, list[Mark]] = {}
    for mark in marks:
        if mark.depth < levels:
            groups.setdefault(mark.name, []).append(mark)
    joined: list[Mark] = []
    for group in groups.values():
        if len({mark.process for mark in group}) == 1:
            joined += group
            continue
        for start, end in stats.union([(mark.start, mark.end) for mark in group]):
            first = next(mark for mark in group if start <= mark.start <= end)
            joined.append(replace(first, start=start, end=end))
    return sorted(joined, key=lambda mark: (mark.depth, mark.start))
