"""This module prepares the lanes of a chart of several runs, on one time axis.

Both (matplotlib's and the interactive one) draw these, so that they say the same.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpumon.drawing.bands import merged_marks
from gpumon.drawing.lanes import Floats, devices_text
from gpumon.errors import MonitorError
from gpumon.recording import Mark, Recording
from gpumon.trace import Trace, read

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
    traces: Mapping[str, Trace | str | os.PathLike[str]], align: str | None, until: Sequence[str]
) -> list[Run]:
    """The lanes of several traces, in their order.

    A run without the phase ``align`` counts from the start of its trace, and its lane says so;
    one without any of the phases ``until`` is seen to its end.
    """
    if not traces:
        raise MonitorError("no trace to draw: give at least one, as {'name': trace or path}")
    return [
        _run(name, (trace if isinstance(trace, Trace) else read(trace)).recording, align, until)
        for name, trace in traces.items()
    ]


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
            device: np.asarray(values)
            for device in devices
            if (values := recording.series(f"{device}/{_QUANTITIES[kind]}")) is not None
        }
        for kind in kinds
    }
    return {kind: members for kind, members in found.items() if members}
