"""This module writes several runs as one interactive chart, with a lane for each run.

The page must hold ``gpumon.drawing.interactive.script()`` once before it.
"""

from __future__ import annotations

import html
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpumon.drawing.interactive import SHORT, markup, phase_of, plain_values, themed
from gpumon.drawing.lanes import Floats, condense
from gpumon.drawing.run_lanes import LABELS, WORDS, Run, runs_of
from gpumon.trace import Trace

MOST_STEPS = 1200
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
    runs = runs_of(traces, align, until)
    lanes: list[dict[str, Any]] = [
        {
            "title": run.name,
            "subtitle": run.subtitle,
            "host": not run.recording.gpus,
            "lines": [_line(run, kind, members) for kind, members in run.lines.items()],
            "phases": [phase_of(mark, run.origin) for mark in run.marks],
            "span": [-run.origin, run.recording.end - run.origin],
        }
        for run in runs
    ]
    kinds = {kind: LABELS[kind] for run in runs for kind in run.lines}
    phases = list(dict.fromkeys(mark.name for run in runs for mark in run.marks))
    gpus = sorted({m["name"] for lane in lanes for line in lane["lines"] for m in line["members"]})
    end = round(max(max(lane["span"][1] for lane in lanes), 1e-3), 3)
    seen = round(max(*(run.end - run.origin for run in runs), 1e-3) * 1.01, 3)
    data = {
        "start": round(min(lane["span"][0] for lane in lanes), 3),
        "end": end,
        "view": [0.0, min(seen, end)],  # as far as zooming back goes
        **themed(phases, theme),
        "levels": 1,
        "left": 150,
        "tall": 58,
        "lanes": lanes,
        "phases": [],
    }
    several = [gpu for gpu in gpus if gpu != "CPU"]
    controls = _controls([run.name for run in runs], several if len(several) > 1 else [])
    return markup(data, kinds, title=title, controls=controls)


def _line(run: Run, kind: str, of: Mapping[str, Floats]) -> dict[str, Any]:
    members, end = [], run.recording.end
    for device, values in of.items():
        times, mean, _, _ = condense(run.recording.times, values, end, MOST_STEPS)
        name = device.rpartition(":")[2].replace("gpu", "GPU ", 1) if kind != "host" else "CPU"
        members.append({"name": name, "v": plain_values(mean)})
    return {
        "kind": kind,
        "short": SHORT[kind],
        "word": WORDS[kind],
        "unit": "%",
        "scale": 1,
        "digits": 0,
        "t": _rounded(times - run.origin),
        "end": round(end - run.origin, 3),
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
