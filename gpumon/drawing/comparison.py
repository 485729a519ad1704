"""This module prepares the lanes of several runs on one time axis."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gpumon import stats
from gpumon.drawing.lanes import Lane, Line, figure_text, merged_marks
from gpumon.errors import MonitorError
from gpumon.recording import Recording
from gpumon.words import duration_text

LINES = {
    "busy": ("utilisation (%)", "GPU utilisation, mean and range", "% busy", "utilisation"),
    "activity": ("SM activity (%)", "SM activity, mean", "% SM active", "SM activity"),
    "host": ("cpu (%)", "CPU, all cores", "% CPU", "CPU"),
}
"""Of each kind of line: the series, its name in the legend, at the side, and at a pointer."""


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
