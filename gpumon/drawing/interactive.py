"""This module writes the interactive chart of a trace as self-contained HTML.

A page with several charts carries the script once: ``script()`` first, then ``fragment(...)`` for
each, or ``page(...)`` for a whole file.
"""

from __future__ import annotations

import html
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpumon.drawing.device_lanes import lanes_of
from gpumon.drawing.lanes import (
    LABELS,
    MOST_LEVELS,
    WORDS,
    Floats,
    Lane,
    Line,
    Run,
    condense,
    labels,
    merged_marks,
    runs_of,
)
from gpumon.drawing.style import KINDS, THEMES, phase_colours
from gpumon.errors import MonitorError
from gpumon.recording import Mark, Recorded, Recording
from gpumon.trace_notes import notes
from gpumon.words import gpu_name

STEPS = {"busy": 1500, "activity": 1500, "memory": 500}
SHORT = {"busy": "utilisation", "host": "CPU", "activity": "SM activity"}
MOST_STEPS = 1000
MOST_MARKS = 3000
_numbers = itertools.count(1)
DRAW = "gpumonDraw();"
"""The one script a chart brings along; always the same, so that a page's policy can allow it."""
COMPARED_STEPS = 1200
BUTTONS = {"in": "Zoom in", "out": "Zoom out", "first": "Training", "all": "Whole run"}


def code() -> str:
    """The drawing code, as JavaScript."""
    return Path(__file__).with_suffix(".js").read_text(encoding="utf-8")


def style() -> str:
    """The style sheet, as HTML."""
    text = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
    return f"\n<style>\n{text}</style>\n"


def script() -> str:
    """Return the style and the drawing code, which a page must include once before its charts."""
    return f"{style()}<script>\n{code()}</script>\n"


def fragment(
    trace: Recorded,
    *,
    title: str | None = None,
    theme: str = "auto",
    series: Sequence[str] = (),
) -> str:
    """Return the HTML of one chart, for a page that includes :func:`script` before it.

    theme and series: see :meth:`gpumon.Trace.html`.
    """
    recording = trace.recording
    lanes = lanes_of(recording, (0.0, max(recording.end, 1e-3)), series)
    data = _data(recording, lanes, theme)
    kinds = {line.kind: line.label for lane in lanes for line in lane.lines}
    return markup(data, kinds, title=title, notes=notes(recording))


def markup(
    data: dict[str, Any],
    kinds: Mapping[str, str],
    *,
    title: str | None = None,
    notes: Sequence[str] = (),
    controls: str = "",
) -> str:
    """The HTML of one chart: legend, ``controls`` (trusted HTML), canvas, and ``data`` as JSON.

    kinds: what each kind of line is called in the legend.
    """
    legend = [
        f'<span><i data-kind="{kind}"></i>{html.escape(kinds[kind])}</span>'
        for kind, look in KINDS.items()
        if kind in kinds and look.named
    ]
    legend += [
        f'<span><i data-phase="{html.escape(phase)}"></i>{html.escape(phase)}</span>'
        for phase in data["colours"]["light"]
    ]
    label = f"{title or 'utilisation over time'}; arrow keys move, plus and minus zoom"
    # Inside a script element only "<" could end the data, or begin what HTML takes for a comment.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return (
        f'<div class="gpumon" id="gpumon-{next(_numbers)}">'
        + (f"<h4>{html.escape(title)}</h4>" if title else "")
        + f'<div class="gpumon-legend">{"".join(legend)}</div>{controls}'
        + f'<canvas tabindex="0" role="img" aria-label="{html.escape(label)}">'
        + '</canvas><div class="gpumon-tip"></div>'
        + "".join(f'<div class="gpumon-note">{html.escape(note)}</div>' for note in notes)
        + f'<script type="application/json">{text}</script>'
        + f"<script>{DRAW}</script></div>\n"
    )


def page(
    trace: Recorded,
    *,
    title: str | None = None,
    theme: str = "auto",
    series: Sequence[str] = (),
) -> str:
    """Return an HTML document with one chart; see :func:`fragment` for the arguments."""
    heading = html.escape(title or f"gpumon {trace.recording.prefix.name}")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f'<meta name="color-scheme" content="light dark"><title>{heading}</title>{script()}</head>'
        f"<body>{fragment(trace, title=title, theme=theme, series=series)}</body></html>\n"
    )


def _data(recording: Recording, lanes: list[Lane], theme: str) -> dict[str, Any]:
    marks = [mark for mark in merged_marks(recording.marks) if mark.depth < MOST_LEVELS]
    # A mark for each of many thousand steps would outweigh all the rest: keep the outer levels.
    while len(marks) > MOST_MARKS and any(mark.depth for mark in marks):
        deepest = max(mark.depth for mark in marks)
        marks = [mark for mark in marks if mark.depth < deepest]
    names = list(dict.fromkeys(mark.name for mark in marks))
    gpus = len({lane.name for lane in lanes if not lane.host})
    return {
        "start": 0.0,
        "end": round(max(recording.end, 1e-3), 3),
        **themed(names, theme),
        "levels": 1 + max((mark.depth for mark in marks), default=-1),
        "tall": 110 if gpus <= 2 else 84 if gpus <= 4 else 60,
        "lanes": [_lane(recording, lane) for lane in lanes],
        "phases": [phase_of(mark) for mark in marks],
    }


def themed(phases: list[str], theme: str) -> dict[str, Any]:
    """What the drawing code needs of the colours; theme: auto, light or dark."""
    if theme not in ("auto", *THEMES):
        raise MonitorError(f"theme={theme!r}: choose auto, {' or '.join(THEMES)}")
    return {
        "theme": theme,
        "looks": {kind: asdict(look) for kind, look in KINDS.items()},
        "themes": {name: asdict(colours) for name, colours in THEMES.items()},
        "colours": {name: phase_colours(phases, colours) for name, colours in THEMES.items()},
    }


def phase_of(mark: Mark, origin: float = 0.0) -> dict[str, Any]:
    """One band for the drawing code, its times counted from ``origin``."""
    return {
        "name": mark.name,
        "depth": mark.depth,
        "start": round(mark.start - origin, 3),
        "end": round(mark.end - origin, 3),
        "labels": labels(mark),
    }


def _lane(recording: Recording, lane: Lane) -> dict[str, Any]:
    lines = []
    for line in lane.lines:
        times, mean, low, high = condense(
            recording.times,
            line.values,
            recording.end,
            STEPS.get(line.kind, MOST_STEPS),
        )
        digits, decimals = _digits(line)
        entry: dict[str, Any] = {
            "kind": line.kind,
            "short": line.short or SHORT.get(line.kind, line.kind),
            "note": line.note,
            "unit": line.unit,
            "scale": line.scale,
            "digits": digits,
            "t": _rounded(times),
            "v": plain_values(mean, decimals),
        }
        if KINDS[line.kind].area and low is not high:
            entry |= {"low": plain_values(low), "high": plain_values(high)}
        lines.append(entry)
    return {
        "title": lane.title,
        "subtitle": lane.subtitle,
        "host": lane.host,
        "lines": lines,
        "lost": lane.lost,
        "marks": lane.marks,
        "top": lane.top,
        "reason": lane.reason,
    }


def _digits(line: Line) -> tuple[int, int]:
    """Digits after the point of what a pointer reads, and of the percent that it is made of."""
    tens = math.log10(line.scale)
    digits = 1 if line.unit == "GiB" else max(0, -math.floor(tens))
    return digits, max(1, math.ceil(tens + digits + 0.31))


def plain_values(values: Floats, decimals: int = 1) -> list[float | None]:
    """JSON has no NaN; a tenth of a percent is finer than a pixel."""
    return [None if math.isnan(value) else round(float(value), decimals) for value in values]


def comparison_fragment(
    traces: Mapping[str, Recorded],
    *,
    align: str = "train",
    until: Sequence[str] = ("train", "validate"),
    title: str | None = None,
    theme: str = "auto",
) -> str:
    """Return the HTML of one chart with several runs, for a page that includes :func:`script`.

    A lane shows the mean of a run's GPUs, the range between them, and SM activity if it was
    recorded. The lane of a run without GPUs shows its CPU. The reader can zoom, read values, and
    hide a run or a GPU.

    traces: by the label of each run. align: the phase whose first start is time 0; a run without it
    starts with its trace. until: the first view ends with the last end of these phases.
    """
    runs = runs_of({name: trace.recording for name, trace in traces.items()}, align, until)
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
        times, mean, _, _ = condense(run.recording.times, values, end, COMPARED_STEPS)
        name = gpu_name(device) if kind != "host" else "CPU"
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
    return [round(float(time), 3) for time in times]


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
