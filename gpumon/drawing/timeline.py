"""This module writes the interactive chart of a trace as self-contained HTML, drawn by uPlot.

A page with several charts carries the scripts and the style once.
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

import numpy as np

from gpumon.drawing.lanes import Lane, comparison_lanes, labels, lanes_of, merged_spans, steps
from gpumon.drawing.style import KINDS, THEMES, phase_colours
from gpumon.errors import MonitorError
from gpumon.recording import Recording, Span
from gpumon.stats import Floats
from gpumon.trace_notes import notes

MOST_STEPS = 1000
MOST_SPANS = 3000
BUTTONS = {"+": "Zoom in", "-": "Zoom out", "Escape": "Training", "Home": "Whole run"}
TICKS = (
    *(ten * step for ten in (0.01, 0.1, 1) for step in (1, 2, 5)),
    *(10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400),
)
"""Seconds that may lie between two moments of the time axis."""
_numbers = itertools.count(1)


def code() -> str:
    """The drawing code, as JavaScript."""
    return _read("uPlot.iife.min.js") + "\n" + _read("timeline.js")


def style() -> str:
    """The style sheet, as HTML."""
    return f"\n<style>\n{_read('uPlot.min.css')}\n{_read('timeline.css')}</style>\n"


def _read(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def page(
    recording: Recording,
    *,
    title: str | None = None,
    theme: str = "auto",
    series: Sequence[str] = (),
) -> str:
    """Return an HTML document with one chart; see :meth:`gpumon.Trace.html`."""
    window = (0.0, max(recording.end, 1e-3))
    lanes = lanes_of(recording, series)
    spans = merged_spans(recording.spans)
    # A span for each of many thousand steps would outweigh all the rest: keep the outer levels.
    while len(spans) > MOST_SPANS and spans[-1].depth:
        spans = [span for span in spans if span.depth < spans[-1].depth]
    heading = html.escape(title or f"gpumon {recording.prefix.name}")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f'<meta name="color-scheme" content="light dark"><title>{heading}</title>'
        f"{style()}<script>\n{code()}</script>\n</head><body>"
        f"{_chart(lanes, spans, window, theme, title, notes(recording))}</body></html>\n"
    )


def comparison_fragment(
    recordings: Mapping[str, Recording],
    *,
    align: str = "train",
    until: Sequence[str] = ("train", "validate"),
) -> str:
    """Return the HTML of one chart with several runs, for a page with :func:`style`, :func:`code`.

    recordings: by the label of each run. See :func:`gpumon.compare`.
    """
    known = {span.name for recording in recordings.values() for span in recording.spans}
    lanes, window = comparison_lanes(recordings, align if align in known else None, until)
    return _chart(lanes, [], window, "auto", None, [])


def _chart(
    lanes: Sequence[Lane],
    spans: Sequence[Span],
    window: tuple[float, float],
    theme: str,
    title: str | None,
    said: Sequence[str],
) -> str:
    """The HTML of one chart: legend, buttons, room for the lanes, and the data as JSON."""
    if theme not in ("auto", *THEMES):
        raise MonitorError(f"theme={theme!r}: choose auto, {' or '.join(THEMES)}")
    drawn = [*spans, *(span for lane in lanes for span in lane.phases or [])]
    phases = list(dict.fromkeys(span.name for span in drawn))
    gpus = len({lane.name for lane in lanes if not lane.host})
    tall = 58 if lanes[0].phases is not None else 110 if gpus <= 2 else 84 if gpus <= 4 else 60
    data: dict[str, Any] = {
        "theme": theme,
        "themes": {name: asdict(colours) for name, colours in THEMES.items()},
        "colours": {name: phase_colours(phases, colours) for name, colours in THEMES.items()},
        "start": min(window[0], *(float(lane.times[0]) for lane in lanes if len(lane.times)), 0.0),
        "end": round(window[1], 3),
        "view": list(window),
        "ticks": TICKS,
        "phases": [_phase(span) for span in spans],
        "lanes": [_lane(lane, min(tall, 64) if lane.host and gpus else tall) for lane in lanes],
    }
    if spans:
        data["lanes"][0]["levels"] = 1 + max(span.depth for span in spans)
    # Inside a script element only "<" could end the data, or begin what HTML takes for a comment.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    names = {line.kind: line.label for lane in lanes for line in lane.lines if line.label}
    legend = [
        f'<span><i data-kind="{KINDS[kind].colour}"></i>{html.escape(names[kind])}</span>'
        for kind in KINDS
        if kind in names
    ] + [
        f'<span><i data-phase="{html.escape(phase)}"></i>{html.escape(phase)}</span>'
        for phase in phases
    ]
    buttons = "".join(
        f'<button type="button" data-do="{action}">{text}</button>'
        for action, text in BUTTONS.items()
    )
    label = html.escape(f"{title or 'utilisation over time'}; arrow keys move, plus and minus zoom")
    return (
        f'<div class="gpumon" id="gpumon-{next(_numbers)}">'
        + (f"<h4>{html.escape(title)}</h4>" if title else "")
        + f'<div class="gpumon-legend">{"".join(legend)}</div>'
        + f'<div class="gpumon-controls">{buttons}<output></output></div>'
        + f'<div class="gpumon-lanes" tabindex="0" role="img" aria-label="{label}"></div>'
        + "".join(f'<div class="gpumon-note">{html.escape(note)}</div>' for note in said)
        + f'<script type="application/json">{text}</script><script>gpumonDraw();</script></div>\n'
    )


def _phase(span: Span) -> dict[str, Any]:
    return {
        "name": span.name,
        "depth": span.depth,
        "start": round(span.start, 3),
        "end": round(span.end, 3),
        "labels": labels(span),
    }


def _lane(lane: Lane, tall: int) -> dict[str, Any]:
    lines, times = [], lane.times
    for line in lane.lines:
        times, mean, low, high = steps(lane, line, MOST_STEPS)
        look = KINDS[line.kind]
        entry = {
            "colour": look.colour,
            "dash": [1.25 * length for length in look.dash],
            "area": look.area,
            "short": line.short,
            "note": line.note,
            "unit": line.unit,
            "scale": line.scale,
            "v": _plain(mean),
        }
        if look.area and not np.array_equal(low, high, equal_nan=True):
            entry |= {"low": _plain(low), "high": _plain(high), "several": line.low is not None}
        lines.append(entry)
    names = ("title", "subtitle", "reason", "marks", "top", "note")
    return {
        **{name: getattr(lane, name) for name in names},
        "tall": tall,
        "levels": int(bool(lane.phases)),
        "phases": None if lane.phases is None else [_phase(span) for span in lane.phases],
        "t": [round(float(time), 3) for time in (*times, lane.end)],
        "lines": lines,
    }


def _plain(values: Floats) -> list[float | None]:
    """JSON has no NaN. The last value holds until the end."""
    numbers = [None if math.isnan(value) else float(f"{value:.5g}") for value in values]
    return numbers + numbers[-1:]
