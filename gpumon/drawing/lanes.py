"""This module defines what both charts draw: lanes of lines, and bands of phases.

Both charts (matplotlib's and the interactive one) draw these, so that they show the same.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from gpumon import stats
from gpumon.errors import MonitorError
from gpumon.recording import Mark, Recording
from gpumon.stats import Floats
from gpumon.words import duration_text

MOST_LEVELS = 3
LINES = {
    "busy": ("utilisation (%)", "GPU utilisation, mean and range", "% busy", "utilisation"),
    "activity": ("SM activity (%)", "SM activity, mean", "% SM active", "SM activity"),
    "host": ("cpu (%)", "CPU, all cores", "% CPU", "CPU"),
}
"""Of each kind of line: the series, its name in the legend, at the side, and at a pointer."""


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
    """A mean over what is shown, for the side of a lane; nothing if nothing is known of it."""
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


def comparison_lanes(
    recordings: Mapping[str, Recording], align: str | None, until: Sequence[str]
) -> tuple[list[Lane], tuple[float, float]]:
    """A lane for each run, by its name, and the stretch of time to show.

    A run without the phase ``align`` counts from the start of its trace, and its lane says so; one
    without any of the phases ``until`` is seen to its end. Raises MonitorError if no run has the
    phase ``align``.
    """
    if not recordings:
        raise MonitorError("no trace to draw: give at least one, as {'name': trace or path}")
    lanes = [_lane(name, each, align, until) for name, each in recordings.items()]
    marks = [mark for each in recordings.values() for mark in each.marks]
    if align is not None and not any(mark.name == align for mark in marks):
        known = dict.fromkeys(mark.name for mark in marks if mark.depth == 0)
        raise MonitorError(
            f"align={align!r}: the traces have {', '.join(known) or 'no phase at all'}"
        )
    right = max(lane.end for lane in lanes)
    left = min(float(lane.times[0]) if len(lane.times) else 0.0 for lane in lanes)
    return lanes, (max(left, -0.05 * right) if align else 0.0, max(right, 1e-3))


def _lane(name: str, recording: Recording, align: str | None, until: Sequence[str]) -> Lane:
    marks = merged_marks(recording.marks, levels=1)
    starts = [mark.start for mark in recording.marks if mark.name == align]
    origin = min(starts, default=0.0)
    end = max((mark.end for mark in marks if mark.name in until), default=recording.end)
    gpus = recording.gpus
    lost = sum(event["event"] == "device lost" for event in recording.events)
    subtitle = f"{len(gpus)} GPU{'s' * (len(gpus) > 1)}" if gpus else "no GPU"
    subtitle += f", {lost} lost" if lost else ""
    subtitle += "" if align is None or starts else f", no {align}"
    count = int(np.searchsorted(recording.times, end))
    lane = Lane(
        name,
        name,
        subtitle,
        recording.times[:count] - origin,
        end - origin,
        host=not gpus,
        phases=[
            replace(mark, start=mark.start - origin, end=mark.end - origin)
            for mark in marks
            if mark.start < end
        ],
        note=duration_text(end - origin),
    )
    weights = stats.weights(recording.times[:count], end, [(origin, end)])
    for kind, (quantity, label, unit, short) in LINES.items():
        keys = [f"{device['name']}/{quantity}" for device in recording.devices]
        members = [v[:count] for key in keys if (v := recording.series(key)) is not None]
        if not members or (kind == "host" and lane.lines):
            continue
        stack = np.vstack(members)
        with warnings.catch_warnings():  # where none is known, nothing is
            warnings.simplefilter("ignore", RuntimeWarning)
            mean, low, high = (f(stack, axis=0) for f in (np.nanmean, np.nanmin, np.nanmax))
        note = figure_text(stats.known(mean, weights).mean(), unit)
        lane.lines.append(Line(kind, label, mean, note, short=short, low=low, high=high))
    return lane
