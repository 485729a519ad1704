"""This module defines what both charts draw: lines in lanes, runs and marks.

Both charts (matplotlib's and the interactive one) draw these, so that they say the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gpumon import stats
from gpumon.errors import MonitorError
from gpumon.recording import Mark, Recording
from gpumon.stats import Floats

MOST_LEVELS = 3

LABELS = {
    "busy": "GPU utilisation, mean and range",
    "activity": "SM activity, mean",
    "host": "CPU, all cores",
}
"""What each kind of line is called in the legend."""
WORDS = {"busy": "busy", "activity": "SM active", "host": "CPU"}
"""What a percentage of it is of, at the side of a lane."""
_QUANTITIES = {"busy": "utilisation (%)", "activity": "SM activity (%)", "host": "cpu (%)"}


@dataclass
class Line:
    """One series as percent of its full scale. kind: how it looks, one of ``style.KINDS``.

    ``values * scale`` is in ``unit``. short: its name in the tooltip; empty: the name of its kind
    """

    kind: str
    label: str
    values: Floats
    note: str
    scale: float = 1.0
    unit: str = "%"
    short: str = ""


@dataclass
class Lane:
    """One device.

    reason: why it has no utilisation. host: it is a machine's CPU and memory, not a GPU. lost: the
    second in which the device was lost to the driver, and how the chart says it. marks: other
    moments, likewise. top: what its highest value is called.
    """

    name: str
    title: str
    subtitle: str
    lines: list[Line] = field(default_factory=list)
    reason: str = ""
    host: bool = False
    lost: tuple[float, str] | None = None
    marks: list[tuple[float, str]] = field(default_factory=list)
    top: str = "100 %"


def figure_text(value: float, unit: str) -> str:
    """A mean over what is shown, for the side of a lane; nothing where nothing is known of it."""
    return f"{value:.0f} {unit}" if not math.isnan(value) else f"no figure, {unit}"


def devices_text(recording: Recording) -> str:
    """What a run's lane stands for, under its name."""
    count = len(recording.gpus)
    lost = sum(event["event"] == "device lost" for event in recording.events)
    if not count:
        return "no GPU"
    return f"{count} GPU{'s' * (count > 1)}" + (f", {lost} lost" if lost else "")


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
    low = np.minimum.reduceat(np.where(known, values, np.inf), places)
    high = np.maximum.reduceat(np.where(known, values, -np.inf), places)
    empty = total == 0
    return (
        times[places],
        np.where(empty, np.nan, mean),
        np.where(empty, np.nan, low),
        np.where(empty, np.nan, high),
    )


def outline(times: Floats, values: Floats, end: float) -> tuple[Floats, Floats]:
    """The corners of a step line: each value from its time to the next, broken where unknown."""
    return np.repeat(np.append(times, end), 2)[1:-1], np.repeat(values, 2)


@dataclass
class Run:
    """One lane.

    origin: the second of its trace that is time 0 of the chart, the first start of the phase that
    runs are aligned on; aligned: whether it has that phase. end: the second of its trace at which
    what is to be seen of it ends. marks: its outermost phases. lines: by kind the values of each of
    its devices, by their names; of its GPUs, or else of its hosts.
    """

    name: str
    recording: Recording
    subtitle: str
    origin: float
    aligned: bool
    end: float
    marks: list[Mark]
    lines: dict[str, dict[str, Floats]]


def runs_of(
    recordings: Mapping[str, Recording], align: str | None, until: Sequence[str]
) -> list[Run]:
    """The lanes of several recordings, in their order.

    A run without the phase ``align`` counts from the start of its trace, and its lane says so;
    one without any of the phases ``until`` is seen to its end.
    """
    if not recordings:
        raise MonitorError("no trace to draw: give at least one, as {'name': trace or path}")
    return [_run(name, recording, align, until) for name, recording in recordings.items()]


def _run(name: str, recording: Recording, align: str | None, until: Sequence[str]) -> Run:
    marks = [mark for mark in merged_marks(recording.marks) if mark.depth == 0]
    starts = [mark.start for mark in recording.marks if mark.name == align]
    origin = min(starts, default=0.0)
    end = max((mark.end for mark in marks if mark.name in until), default=recording.end)
    aligned = align is None or bool(starts)
    subtitle = devices_text(recording) + ("" if aligned else f", no {align}")
    lines = _lines(recording, ("busy", "activity"), [gpu["name"] for gpu in recording.gpus])
    if not lines:
        hosts = [device["name"] for device in recording.devices if device["kind"] == "host"]
        lines = _lines(recording, ("host",), hosts)
    return Run(name, recording, subtitle, origin, aligned, end, marks, lines)


def _lines(
    recording: Recording, kinds: Sequence[str], devices: Sequence[str]
) -> dict[str, dict[str, Floats]]:
    found = {
        kind: {
            device: values
            for device in devices
            if (values := recording.series(f"{device}/{_QUANTITIES[kind]}")) is not None
        }
        for kind in kinds
    }
    return {kind: members for kind, members in found.items() if members}


def labels(mark: Mark) -> list[str]:
    """A phase's names, long to short: ``train, epoch 2``, ``train 2``, ``train``."""
    short = mark.name.rsplit("/", 1)[-1]
    if "epoch" not in mark.attributes:
        return [short]
    epoch = mark.attributes["epoch"]
    return [f"{short}, epoch {epoch}", f"{short} {epoch}", short]


def merged_marks(marks: Sequence[Mark]) -> list[Mark]:
    """Marks with those of one name that overlap (several processes) made one."""
    groups: dict[str, list[Mark]] = {}
    for mark in marks:
        groups.setdefault(mark.name, []).append(mark)
    joined = []
    for name, group in groups.items():
        if len({mark.process for mark in group}) == 1:
            joined += group
            continue
        for start, end in stats.union([(mark.start, mark.end) for mark in group]):
            first = next(mark for mark in group if start <= mark.start <= end)
            joined.append(Mark(name, start, end, first.process, first.attributes))
    return joined
