"""This module draws several runs in one chart, with a lane for each run."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np

from gpumon import stats
from gpumon.drawing.bands import Bands, legend_handles
from gpumon.drawing.chart import (
    CONTEXT,
    GAP,
    HEAD,
    LANES,
    RIBBON,
    TITLE,
    Chart,
    add_legend,
    blank,
    frame_axes,
    side_texts,
    steps,
)
from gpumon.drawing.lanes import LABELS, WORDS, Run, condense, figure_text, outline, runs_of
from gpumon.drawing.style import Theme, colour_of, phase_colours, theme
from gpumon.errors import MonitorError
from gpumon.trace import Trace, read
from gpumon.words import duration_text

LANE = 0.82  # inches
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
    heights = [*[RIBBON] * levels, LANE] * len(runs)
    height = HEAD + (TITLE if title else 0.0) + sum(heights) + GAP * len(runs)
    inside = LANES * width
    # One colour a phase in all lanes; what is named in no lane goes into the legend.
    marks = [[mark for mark in run.marks if mark.start < run.end] for run in runs]
    outer = dict.fromkeys(mark.name for of_run in marks for mark in of_run)
    names = phase_colours(list(outer), colours)
    labelled: set[str] = set()
    with mpl.rc_context(CONTEXT):
        figure, rows = blank(heights, (width, height), colours, title)
        for number, run in enumerate(runs):
            *ribbon, axes = rows[number * (levels + 1) : (number + 1) * (levels + 1)]
            moved = (window[0] + run.origin, window[1] + run.origin)
            bands = Bands(marks[number], moved, colours, names)
            bands.place_labels(inside)
            for each in ribbon:
                bands.ribbon(each)
            labelled |= bands.labelled
            frame_axes(axes, colours, moved, number == len(runs) - 1, False, run.origin)
            bands.tint(axes)
            _lane(axes, run, colours, inside)
        rest = [(name, colour) for name, colour in names.items() if name not in labelled]
        labels = {kind: LABELS[kind] for run in runs for kind in run.lines}
        add_legend(rows[0], legend_handles(labels, rest, colours), inside, colours)
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
    name = textwrap.wrap(run.name, LETTERS, max_lines=NAME_LINES, placeholder=" …")
    below = textwrap.wrap(run.subtitle, LETTERS + 3)
    left = [
        *((text, {"fontsize": 8.5, "weight": "bold", "color": colours.text}) for text in name),
        *((text, {"fontsize": 7, "color": colours.faint}) for text in below),
    ]
    side_texts(axes, left, [(text, {"color": colour}) for colour, text in notes])
