"""This module draws the chart of a trace with matplotlib, with a lane for each device."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator

from gpumon.drawing.bands import Bands, legend_handles, stroke
from gpumon.drawing.device_lanes import lanes_of
from gpumon.drawing.lanes import Lane, condense, outline
from gpumon.drawing.style import KINDS, Theme, colour_of, theme
from gpumon.errors import MonitorError
from gpumon.recording import Recording
from gpumon.trace_notes import notes
from gpumon.words import time_text

LANES = 0.77
"""About the share of a chart's width that lanes take; their names and figures take the rest."""
RIBBON, HEAD, TITLE, NOTE, GAP = 0.21, 0.8, 0.3, 0.19, 0.07  # inches
NAME_AT, FIGURE_AT, LINE = 33, 7, 11.2
"""Points between a lane and what stands at its sides, and from line to line."""
LONG = 26
"""Letters from which a text at a lane's side is set smaller."""
LETTER = 0.072  # inches, a mean letter of a note
SWATCH, LEGEND_LETTER = 0.5, 0.066  # inches
# A name is no formula, whatever dollar signs it holds.
CONTEXT: Any = {"font.size": 8.5, "axes.linewidth": 0.6, "text.parse_math": False}
# What is condensed to fit keeps its range as a faint shade.
PIXELS = 105  # in an inch
Texts = Sequence[tuple[str, dict[str, Any]]]
"""Lines of text, each with how it looks."""


def steps(kind: str, inches: float) -> int:
    """The most steps of a line of some kind in a chart so many inches wide."""
    return max(10, round(PIXELS / KINDS[kind].pixels * inches))


class Chart(Figure):
    """A matplotlib Figure that shows itself in a notebook, once, and leaves pyplot alone."""

    def _repr_png_(self) -> bytes:
        data = io.BytesIO()
        self.savefig(data, format="png", dpi=130)
        return data.getvalue()


def draw(
    recording: Recording,
    *,
    theme_name: str = "light",
    title: str | None = None,
    window: tuple[float, float] | None = None,
    size: tuple[float, float] | None = None,
    devices: Sequence[str] | None = None,
    series: Sequence[str] = (),
) -> Chart:
    """Draw a recording; see :meth:`gpumon.Trace.plot`."""
    colours = theme(theme_name)
    start, end = window or (0.0, max(recording.end, 1e-3))
    if not start < end:
        raise MonitorError(f"window={window!r}: the start must come before the end, in seconds")
    lanes = lanes_of(recording, (start, end), series)
    if devices is not None:
        lanes = [lane for lane in lanes if lane.name in devices]
        if not lanes:
            known = ", ".join(device["name"] for device in recording.devices)
            raise MonitorError(f"devices={list(devices)!r}: the trace has {known}")
    bands = Bands(recording.marks, (start, end), colours)
    heights = _heights(lanes)
    width = size[0] if size else 10.0
    inside = LANES * width
    bands.place_labels(inside)
    lines = [
        line
        for note in notes(recording)
        for line in textwrap.wrap(note, max(10, int(width / LETTER)))
    ]
    ratios = [RIBBON * bands.levels] * bool(bands.levels) + heights
    fixed = HEAD + TITLE * bool(title) + NOTE * len(lines) + GAP * len(ratios)
    height = size[1] if size else fixed + sum(ratios)
    if height < fixed + 0.15 * sum(ratios) or width < 3:
        raise MonitorError(f"size={size!r}: too small for {len(lanes)} lanes, in inches")
    with mpl.rc_context(CONTEXT):
        figure, rows = blank(ratios, (width, height), colours, title)
        if bands.levels:
            bands.ribbon(rows[0])
        for axes, lane, tall in zip(rows[-len(lanes) :], lanes, heights, strict=True):
            frame_axes(axes, colours, (start, end), lane is lanes[-1], tall > 0.81, top=lane.top)
            bands.tint(axes)
            _lane(axes, recording, lane, colours, inside)
            name: dict[str, Any] = {"fontsize": 9, "weight": "bold", "color": colours.text}
            below = {"fontsize": 7, "color": colours.faint}
            figures = [(line.note, {"color": colour_of(line.kind, colours)}) for line in lane.lines]
            side_texts(axes, [(lane.title, name), (lane.subtitle, below)], figures)
        kinds = {line.kind: line.label for lane in lanes for line in lane.lines}
        add_legend(rows[0], legend_handles(kinds, bands.unlabelled(), colours), inside, colours)
        if lines:
            look = {"ha": "left", "fontsize": 8.5, "color": colours.faint}
            figure.supxlabel("\n".join(lines), x=0.01, **look)
    return figure


def blank(
    ratios: Sequence[float], size: tuple[float, float], colours: Theme, title: str | None
) -> tuple[Chart, list[Axes]]:
    """A chart of rows below each other, with these heights in relation to each other."""
    figure = Chart(
        figsize=size,
        facecolor=colours.background,
        layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.02, hspace=0.01),
    )
    FigureCanvasAgg(figure)
    rows = figure.subplots(len(ratios), 1, squeeze=False, height_ratios=ratios)[:, 0]
    if title:
        look = {"ha": "left", "fontsize": 12, "weight": "bold", "color": colours.text}
        figure.suptitle(title, x=0.01, **look)
    return figure, list(rows)


def add_legend(axes: Axes, handles: Sequence[Any], inches: float, colours: Theme) -> None:
    """Put a legend of at most three rows above some axes so many inches wide."""
    if handles:
        longest = max(len(handle.get_label()) for handle in handles)
        columns = max(1, int(inches / (SWATCH + LEGEND_LETTER * longest)))
        axes.legend(
            handles=handles[: 3 * columns],
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=columns,
            frameon=False,
            fontsize=8,
            labelcolor=colours.faint,
            borderaxespad=0.2,
            borderpad=0.2,
            handlelength=1.4,
            columnspacing=1.5,
            handletextpad=0.5,
        )


def side_texts(axes: Axes, left: Texts, right: Texts) -> None:
    """A lane's name on the left and its figures on the right, as lines about its middle."""
    for texts, side, away, align in ((left, 0, -NAME_AT, "right"), (right, 1, FIGURE_AT, "left")):
        shown = [(text, look) for text, look in texts if text]
        for number, (text, look) in enumerate(shown):
            above = LINE * ((len(shown) - 1) / 2 - number)
            points = look.get("fontsize", 8) * min(1, LONG / len(text))
            axes.annotate(
                text,
                (side, 0.5),
                (away, above),
                xycoords="axes fraction",
                textcoords="offset points",
                ha=align,
                va="center",
                **{**look, "fontsize": points},
            )


def _heights(lanes: Sequence[Lane]) -> list[float]:
    """Inches: lanes get lower as there are more of them, so that eight GPUs still fit a page."""
    gpus = len({lane.name for lane in lanes if not lane.host})
    tall = 1.25 if gpus <= 2 else 0.95 if gpus <= 4 else 0.66
    host = 1.1 if gpus == 0 else min(tall, 0.8)
    return [host if lane.host else tall for lane in lanes]


def frame_axes(
    axes: Axes,
    colours: Theme,
    window: tuple[float, float],
    last: bool,
    tall: bool,
    origin: float = 0.0,
    top: str = "100 %",
) -> None:
    """The empty lane: scale to ``top``, grid, and if last the time axis from ``origin``."""
    axes.set_facecolor(colours.lane)
    axes.set_xlim(*window)
    axes.set_ylim(0, 104)
    axes.set_yticks([0, 50, 100], ["0" if tall else "", "", top])
    axes.grid(axis="y", color=colours.grid, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=colours.faint, length=0, labelsize=7.5, pad=3)
    for side in axes.spines.values():
        side.set_visible(False)
    length = window[1] - window[0]
    nice = MaxNLocator(9, steps=[1, 2, 3, 6, 10] if length > 120 else [1, 2, 5, 10])
    ticks = np.asarray(nice.tick_values(window[0] - origin, window[1] - origin)) + origin
    axes.set_xticks(ticks[(window[0] <= ticks) & (ticks <= window[1])])
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: time_text(value - origin, length))
    )
    axes.tick_params(axis="x", labelbottom=last, labelsize=8)


def _lane(axes: Axes, recording: Recording, lane: Lane, colours: Theme, inside: float) -> None:
    for line in lane.lines:
        colour, look = colour_of(line.kind, colours), KINDS[line.kind]
        times, mean, low, high = condense(
            recording.times, line.values, recording.end, steps(line.kind, inside)
        )
        corners, heights = outline(times, mean, recording.end)
        if look.area:
            axes.fill_between(corners, heights, color=colour, alpha=0.30, linewidth=0)
            axes.plot(corners, heights, color=colour, linewidth=0.9)
        else:
            dashes = stroke(line.kind)
            axes.plot(corners, heights, color=colour, linewidth=1.2, linestyle=dashes)
        if low is not high and look.area:
            lows, highs = (outline(times, each, recording.end)[1] for each in (low, high))
            axes.fill_between(corners, lows, highs, color=colour, alpha=0.14, linewidth=0)
    # Matplotlib cannot clip a text that is far outside, as in a short window into a long trace.
    left, right = axes.get_xlim()
    for number, (moment, text) in enumerate(lane.marks):
        if not left <= moment <= right:
            continue
        axes.axvline(moment, color=colours.machine, linewidth=0.9, linestyle=(0, (3, 2)))
        level = 92 - 14 * (number % 3)
        axes.text(moment, level, f" {text}", color=colours.machine, fontsize=7.5, clip_on=True)
    if lane.lost is not None and left <= lane.lost[0] <= right:
        moment, text = lane.lost
        axes.axvline(moment, color=colours.activity, linewidth=1.2)
        axes.text(moment, 80, f" {text}", color=colours.activity, fontsize=8, clip_on=True)
    if lane.reason:
        middle: dict[str, Any] = {"transform": axes.transAxes, "ha": "center", "va": "center"}
        axes.text(0.5, 0.5, lane.reason, color=colours.faint, fontsize=8, **middle)
