"""This module draws several runs in one chart, with a lane for each run."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg

from gpumon import stats
from gpumon.drawing.bands import Bands, draw_legend, legend_handles, legend_rows
from gpumon.drawing.chart import BOTTOM, CONTEXT, RIBBON, TOP, Chart, draw_title, frame_axes, steps
from gpumon.drawing.lanes import LABELS, WORDS, Run, condense, figure_text, outline, runs_of
from gpumon.drawing.style import Theme, colour_of, phase_colours, theme
from gpumon.errors import MonitorError
from gpumon.trace import Trace, read
from gpumon.words import duration_text

LANE, GAP, HEAD, TITLE, LEFT, RIGHT = 0.82, 0.16, 0.36, 0.32, 1.5, 1.25
LETTERS, NAME_LINES = 13, 3
"""What of a run's name fits to the left of its lane."""


def compare(
    traces: Mapping[str, Trace | str | os.PathLike[str]],
    *,
    theme: str = "light",
    title: str | None = None,
    align: str | None = None,
    until: Sequence[str] = (),
    width: float = 10.0,
) -> Chart:
    """Draw several runs, one above the other, on one time axis.

    A lane shows the mean utilisation of a run's GPUs, a shade for the range between them, and SM
    activity if it was recorded. The lane of a run without GPUs shows its CPU.

    Args:
        traces: the traces or their paths, by the label of each run.
        theme: ``"light"`` or ``"dark"``.
        title: text above the chart.
        align: the phase whose first start is time 0 in each run, such as ``"train"`` to exclude
            start-up. None: the start of each trace.
        until: phases; each lane ends with the last end of any of them. Empty: the end of the trace.
        width: the chart's width in inches.

    Returns:
        A matplotlib Figure, which shows itself as the value of a notebook cell.

    Raises:
        MonitorError: a trace cannot be read, or no trace has the phase ``align``.
    """
    colours = _theme(theme)
    recordings = {
        name: (trace if isinstance(trace, Trace) else read(trace)).recording
        for name, trace in traces.items()
    }
    runs = runs_of(recordings, align, until)
    if not any(run.aligned for run in runs):
        known = dict.fromkeys(mark.name for run in runs for mark in run.marks)
        raise MonitorError(
            f"align={align!r}: the traces have {', '.join(known) or 'no phase at all'}"
        )
    right = max(run.end - run.origin for run in runs)
    left = min(-run.origin for run in runs)
    window = (max(left, -0.05 * right) if align else 0.0, max(right, 1e-3))
    levels = int(any(run.marks for run in runs))
    row = RIBBON * levels + LANE + GAP
    head = HEAD + (TITLE if title else 0.0)
    height = head + row * len(runs) + BOTTOM
    with mpl.rc_context(CONTEXT):
        figure = Chart(figsize=(width, height), facecolor=colours.background)
        FigureCanvasAgg(figure)
        if title:
            draw_title(figure, title, LEFT, height - TOP, colours)
        # One colour a phase in all lanes; what is named in no lane goes into the legend.
        marks = [[mark for mark in run.marks if mark.start < run.end] for run in runs]
        outer = dict.fromkeys(mark.name for of_run in marks for mark in of_run)
        names = phase_colours(list(outer), colours)
        labelled: set[str] = set()
        top = height - head
        inside = width - LEFT - RIGHT
        for number, run in enumerate(runs):
            moved = (window[0] + run.origin, window[1] + run.origin)
            bands = Bands(marks[number], moved, colours, names)
            top -= RIBBON * levels
            if bands.levels:
                box = (LEFT / width, top / height, inside / width, RIBBON / height)
                bands.place_labels(inside)
                bands.ribbon(figure.add_axes(box))
                labelled |= bands.labelled
            top -= LANE + 0.03
            axes = figure.add_axes((LEFT / width, top / height, inside / width, LANE / height))
            frame_axes(axes, colours, moved, number == len(runs) - 1, False, run.origin)
            bands.tint(axes)
            _lane(axes, run, colours, inside)
            top -= GAP - 0.03
        rest = [(name, colour) for name, colour in names.items() if name not in labelled]
        labels = {kind: LABELS[kind] for run in runs for kind in run.lines}
        rows = legend_rows(legend_handles(labels, rest, colours), width - LEFT, most=1)
        draw_legend(figure, rows, LEFT, height - (head - HEAD) - 0.1, colours)
    return figure


_theme = theme


def _lane(axes: mpl.axes.Axes, run: Run, colours: Theme, inside: float) -> None:
    end, count = run.end, int(np.searchsorted(run.recording.times, run.end))
    times = run.recording.times[:count]
    weights = stats.weights(times, end, [(run.origin, end)])
    notes: list[tuple[str, str]] = []
    for kind, members in run.lines.items():
        colour = colour_of(kind, colours)
        stack = np.vstack(list(members.values()))[:, :count]
        known = ~np.isnan(stack).all(axis=0)
        middle, low, high = (np.full(stack.shape[1], np.nan) for _ in range(3))
        for found, over in ((middle, np.nanmean), (low, np.nanmin), (high, np.nanmax)):
            found[known] = over(stack[:, known], axis=0)
        most = steps(kind, inside)
        moments, mean, _, _ = condense(times, middle, end, most)
        corners, heights = outline(moments, mean, end)
        if kind != "activity":
            axes.fill_between(corners, heights, color=colour, alpha=0.30, linewidth=0)
            if len(members) > 1:
                least, greatest = (
                    outline(moments, condense(times, each, end, most)[1], end)[1]
                    for each in (low, high)
                )
                axes.fill_between(corners, least, greatest, color=colour, alpha=0.22, linewidth=0)
        axes.plot(corners, heights, color=colour, linewidth=0.9)
        share = stats.known(middle, weights).mean()
        notes.append((colour, figure_text(share, f"% {WORDS[kind]}")))
    notes.append((colours.faint, duration_text(end - run.origin)))
    _texts(axes, run, notes, colours)


def _texts(axes: mpl.axes.Axes, run: Run, notes: list[tuple[str, str]], colours: Theme) -> None:
    step = 0.16 / LANE
    common: dict[str, Any] = {"transform": axes.transAxes, "va": "center", "clip_on": False}
    name = textwrap.wrap(run.name, LETTERS, max_lines=NAME_LINES, placeholder=" …")
    left: list[tuple[str, dict[str, Any]]] = [
        *((line, {"weight": "bold", "color": colours.text}) for line in name),
        *(
            (line, {"fontsize": 7, "color": colours.faint})
            for line in textwrap.wrap(run.subtitle, 16)
        ),
    ]
    top = 0.5 + step * (len(left) - 1) / 2
    for number, (text, look) in enumerate(left):
        axes.text(-0.055, top - number * step, text, ha="right", **look, **common)
    first = 0.5 + step * (len(notes) - 1) / 2
    for number, (colour, text) in enumerate(notes):
        axes.text(1.012, first - number * step, text, color=colour, fontsize=8, **common)
