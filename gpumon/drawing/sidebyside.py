"""Several runs in one interactive chart: a lane a run, its own phases, the same axes.

The page must hold ``gpumon.drawing.interactive.script()`` once before it.
"""

from __future__ import annotations

import html
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpumon.drawing.bands import shown
from gpumon.drawing.interactive import markup, phase_of, plain_values, themed
from gpumon.drawing.lanes import Floats, condense, devices_in_words
from gpumon.errors import MonitorError
from gpumon.recording import Recording
from gpumon.trace import Trace, read

MOST_STEPS = 1200
KINDS = {
    "busy": "GPU utilisation, mean and range",
    "activity": "SM activity, mean",
    "host": "CPU, all cores",
}
BUTTONS = {"in": "Zoom in", "out": "Zoom out", "first": "Training", "all": "Whole run"}


def fragment(
    traces: Mapping[str, Trace | str | os.PathLike[str]],
    *,
    align: str = "train",
    until: Sequence[str] = ("train", "validate"),
    title: str | None = None,
    theme: str = "auto",
) -> str:
    """One chart with a lane for each run: the mean of its GPUs, the range between them, SM
    activity where there is any; the CPU where there is no GPU.

    Time 0 is the first start of the phase ``align`` in each run, or of its trace where it has no
    such phase. What is seen at first goes until the last end of the phases ``until``. The reader
    can zoom, point, and hide a run or a GPU.
    """
    if not traces:
        raise MonitorError("fragment() needs at least one trace, as {'name': trace or path}")
    runs = {
        name: (trace if isinstance(trace, Trace) else read(trace)).recording
        for name, trace in traces.items()
    }
    lanes: list[dict[str, Any]] = []
    kinds: dict[str, str] = {}
    phases: dict[str, None] = {}
    ends = []
    for name, run in runs.items():
        marks = [mark for mark in shown(run.marks) if mark.depth == 0]
        origin = min((mark.start for mark in marks if mark.name == align), default=0.0)
        phases |= dict.fromkeys(mark.name for mark in marks)
        last = [mark.end for mark in marks if mark.name in until]
        ends.append(max(last, default=run.end) - origin)
        lines = _lines(run, origin)
        kinds |= {line["kind"]: KINDS[line["kind"]] for line in lines}
        lanes.append(
            {
                "title": name,
                "subtitle": devices_in_words(run),
                "host": not run.gpus,
                "lines": lines,
                "phases": [phase_of(mark, origin) for mark in marks],
                "span": [-origin, run.end - origin],
            }
        )
    gpus = sorted({m["name"] for lane in lanes for line in lane["lines"] for m in line["members"]})
    data = {
        "start": round(min(lane["span"][0] for lane in lanes), 3),
        "end": round(max(max(lane["span"][1] for lane in lanes), 1e-3), 3),
        "view": [0.0, round(max(*ends, 1e-3) * 1.01, 3)],
        **themed(list(phases), theme),
        "levels": 1,
        "left": 150,
        "tall": 58,
        "lanes": lanes,
        "phases": [],
    }
    several = [gpu for gpu in gpus if gpu != "CPU"]
    controls = _controls(list(runs), several if len(several) > 1 else [])
    return markup(data, kinds, title=title, controls=controls)


def _lines(run: Recording, origin: float) -> list[dict[str, Any]]:
    gpus = [gpu["name"] for gpu in run.gpus]
    hosts = [device["name"] for device in run.devices if device["kind"] == "host"]
    lines = [
        _line(run, origin, "busy", "busy", "utilisation (%)", gpus),
        _line(run, origin, "activity", "SM active", "SM activity (%)", gpus),
    ]
    if not any(lines):
        lines = [_line(run, origin, "host", "CPU", "cpu (%)", hosts)]
    return [line for line in lines if line is not None]


def _line(
    run: Recording, origin: float, kind: str, word: str, quantity: str, devices: Sequence[str]
) -> dict[str, Any] | None:
    members, times = [], None
    for device in devices:
        values = run.series(f"{device}/{quantity}")
        if values is None:
            continue
        times, mean, _, _ = condense(run.times, np.asarray(values), run.end, MOST_STEPS)
        name = device.rpartition(":")[2].replace("gpu", "GPU ", 1) if kind != "host" else "CPU"
        members.append({"name": name, "v": plain_values(mean)})
    if times is None:
        return None
    return {
        "kind": kind,
        "short": {"busy": "utilisation", "activity": "SM activity", "host": "CPU"}[kind],
        "word": word,
        "unit": "%",
        "scale": 1,
        "digits": 0,
        "t": _rounded(times - origin),
        "end": round(run.end - origin, 3),
        "members": members,
    }


def _rounded(times: Floats) -> list[float]:
    return [float(time) for time in np.round(times, 3)]


def _controls(runs: Sequence[str], gpus: Sequence[str]) -> str:
    buttons = "".join(
        f'<button type="button" data-do="{action}">{text}</button>'
        for action, text in BUTTONS.items()
    )
    return (
        f'<div class="gpumon-controls">{buttons}{_boxes("Runs", runs)}'
        f"{_boxes('GPUs', gpus) if gpus else ''}</div>"
    )


def _boxes(legend: str, names: Sequence[str]) -> str:
    boxes = "".join(
        f'<label><input type="checkbox" checked data-hide="{html.escape(name)}">'
        f"{html.escape(name)}</label>"
        for name in names
    )
    return f"<fieldset><legend>{legend}</legend>{boxes}</fieldset>"
