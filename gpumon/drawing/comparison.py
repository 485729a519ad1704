"""Several runs on the same axes: one lane a run, so that frameworks are seen side by side."""

from __future__ import annotations

import os
from collections.abc import Mapping

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg

from gpumon import stats
from gpumon.drawing import legend
from gpumon.drawing.bands import Bands
from gpumon.drawing.chart import BOTTOM, CONTEXT, LEFT, RIBBON, Chart, frame_axes, steps
from gpumon.drawing.lanes import Floats, condense, devices_in_words, in_words, outline
from gpumon.drawing.style import Theme, phase_colours, theme
from gpumon.errors import MonitorError
from gpumon.recording import Recording
from gpumon.trace import Trace, read
from gpumon.units import lasting

LABELS = {
    "busy": "GPU utilisation, mean and range",
    "activity": "SM activity, mean",
    "host": "CPU, all cores",
}
LANE, GAP, HEAD, TITLE, RIGHT = 0.82, 0.16, 0.36, 0.32, 1.25


def compare(
    traces: Mapping[str, Trace | str | os.PathLike[str]],
    *,
    theme: str = "light",
    title: str | None = None,
    align: str | None = None,
    width: float = 10.0,
) -> Chart:
    """Draw several runs under each other, on one time axis and one scale.

    A lane shows the mean utilisation of a run's GPUs with the range between them as a shade, and
    SM activity over it where there is any; a run without GPUs shows its CPU. Each lane carries
    its own phases. ``align``: the name of a phase whose first start is time 0 in each run (such
    as ``"train"``, to leave start-up out of the comparison); None: the start of each trace.
    """
    colours = _theme(theme)
    if not traces:
        raise MonitorError("compare() needs at least one trace, as {'name': trace or path}")
    runs = {
        name: (trace if isinstance(trace, Trace) else read(trace)).recording
        for name, trace in traces.items()
    }
    origins = {name: _origin(name, run, align) for name, run in runs.items()}
    left = min(-origin for origin in origins.values())
    right = max(run.end - origins[name] for name, run in runs.items())
    window = (max(left, -0.05 * right) if align else 0.0, max(right, 1e-3))
    levels = int(any(mark.depth == 0 for run in runs.values() for mark in run.marks))
    row = RIBBON * levels + LANE + GAP
    head = HEAD + (TITLE if title else 0.0)
    height = head + row * len(runs) + BOTTOM
    with mpl.rc_context(CONTEXT):
        figure = Chart(figsize=(width, height), facecolor=colours.background)
        FigureCanvasAgg(figure)
        if title:
            figure.text(
                LEFT / width,
                1 - 0.12 / height,
                title,
                color=colours.text,
                fontsize=12,
                weight="bold",
                va="top",
            )
        kinds: set[str] = set()
        # One colour a phase in all lanes; what is named in no lane goes into the legend.
        outer = dict.fromkeys(m.name for run in runs.values() for m in run.marks if m.depth == 0)
        names = phase_colours(list(outer), colours)
        labelled: set[str] = set()
        top = height - head
        inside = width - LEFT - RIGHT
        for number, (name, run) in enumerate(runs.items()):
            moved = (window[0] + origins[name], window[1] + origins[name])
            marks = [mark for mark in run.marks if mark.depth == 0]
            bands = Bands(marks, moved, colours, names)
            if levels:
                top -= RIBBON
                box = (LEFT / width, top / height, inside / width, RIBBON / height)
                bands.settle(inside)
                bands.ribbon(figure.add_axes(box))
                labelled |= bands.labelled
            top -= LANE + 0.03
            axes = figure.add_axes((LEFT / width, top / height, inside / width, LANE / height))
            frame_axes(axes, colours, moved, number == len(runs) - 1, False, origins[name])
            bands.tint(axes)
            kinds |= _lane(axes, name, run, colours, moved, inside)
            top -= GAP - 0.03
        rest = [(name, colour) for name, colour in names.items() if name not in labelled]
        labels = {kind: LABELS[kind] for kind in kinds}
        rows = legend.rows(legend.handles(labels, rest, colours), width - LEFT, most=1)
        legend.draw(figure, rows, LEFT, height - (head - HEAD) - 0.1, colours)
    return figure


_theme = theme


def _origin(name: str, run: Recording, align: str | None) -> float:
    if align is None:
        return 0.0
    starts = [mark.start for mark in run.marks if mark.name == align]
    if not starts:
        known = ", ".join(dict.fromkeys(mark.name for mark in run.marks)) or "no phase at all"
        raise MonitorError(f"align={align!r}: the trace of {name} has {known}")
    return min(starts)


def _over_gpus(run: Recording, quantity: str) -> list[Floats]:
    found = [run.series(f"{gpu['name']}/{quantity}") for gpu in run.gpus]
    return [np.asarray(series) for series in found if series is not None]


def _lane(
    axes: mpl.axes.Axes,
    name: str,
    run: Recording,
    colours: Theme,
    window: tuple[float, float],
    inside: float,
) -> set[str]:
    """Draw one run; returns the kinds of lines it has."""
    weights = stats.weights(run.times, run.end, [(max(window[0], 0.0), run.end)])
    gpus = _over_gpus(run, "utilisation (%)")
    kind, word = ("busy", "busy") if gpus else ("host", "CPU")
    values = gpus or [
        np.asarray(v) for d in run.devices if (v := run.series(f"{d['name']}/cpu (%)")) is not None
    ]
    notes: list[tuple[str, str]] = []
    kinds: set[str] = set()
    for what, series, text in (
        (kind, values, word),
        ("activity", _over_gpus(run, "SM activity (%)"), "SM active"),
    ):
        if not series:
            continue
        kinds.add(what)
        colour = getattr(colours, what)
        stack = np.vstack(series)
        known = ~np.isnan(stack).all(axis=0)
        middle = np.full(stack.shape[1], np.nan)
        middle[known] = np.nanmean(stack[:, known], axis=0)
        times, mean, _, _ = condense(run.times, middle, run.end, steps(what, inside))
        corners, heights = outline(times, mean, run.end)
        if what != "activity":
            axes.fill_between(corners, heights, color=colour, alpha=0.30, linewidth=0)
            if len(series) > 1:
                low, high = middle.copy(), middle.copy()
                low[known] = np.nanmin(stack[:, known], axis=0)
                high[known] = np.nanmax(stack[:, known], axis=0)
                _, lows, _, _ = condense(run.times, low, run.end, steps(what, inside))
                _, highs, _, _ = condense(run.times, high, run.end, steps(what, inside))
                least, most = (outline(times, each, run.end)[1] for each in (lows, highs))
                axes.fill_between(corners, least, most, color=colour, alpha=0.22, linewidth=0)
        axes.plot(corners, heights, color=colour, linewidth=0.9)
        notes.append(
            (colour, in_words(stats.mean(stats.known(middle.tolist(), weights)), f"% {text}"))
        )
    subtitle = devices_in_words(run)
    notes.append((colours.faint, lasting(run.end)))
    _texts(axes, name, subtitle, notes, colours)
    return kinds


def _texts(
    axes: mpl.axes.Axes, name: str, subtitle: str, notes: list[tuple[str, str]], colours: Theme
) -> None:
    step = 0.16 / LANE
    common: dict[str, object] = {"transform": axes.transAxes, "va": "center", "clip_on": False}
    axes.text(-0.055, 0.6, name, color=colours.text, weight="bold", ha="right", **common)  # type: ignore[arg-type]
    axes.text(-0.055, 0.6 - step, subtitle, color=colours.faint, ha="right", fontsize=7, **common)  # type: ignore[arg-type]
    first = 0.5 + step * (len(notes) - 1) / 2
    for number, (colour, text) in enumerate(notes):
        axes.text(1.012, first - number * step, text, color=colour, fontsize=8, **common)  # type: ignore[arg-type]
