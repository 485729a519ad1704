"""This module draws the chart of a trace with matplotlib, with a lane for each device."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.ticker import FuncFormatter, MaxNLocator

from gpumon.drawing.bands import LEGEND_ROW, Bands, draw_legend, legend_handles, legend_rows, stroke
from gpumon.drawing.device_lanes import lanes_of
from gpumon.drawing.lanes import Lane, condense, outline
from gpumon.drawing.style import KINDS, Theme, colour_of, theme
from gpumon.errors import MonitorError
from gpumon.recording import Recording
from gpumon.trace_notes import notes
from gpumon.words import time_text

LEFT, RIGHT, TOP, BOTTOM, GAP = 0.98, 1.12, 0.12, 0.32, 0.09
NAME_AT, FIGURE_AT = 0.46, 0.1
"""Inches between a lane and what stands at its sides."""
WIDEST = 0.22
"""The largest share of the chart's width for a side; longer texts are set smaller."""
TITLE_POINTS, SUBTITLE_POINTS, FIGURE_POINTS = 9.0, 7.0, 8.0
RIBBON, LEGEND, TITLE, NOTE = 0.21, 0.27, 0.30, 0.24
LETTER = 0.072  # inches, a mean letter of a note
# A name is no formula, whatever dollar signs it holds.
CONTEXT: Any = {"font.size": 8.5, "axes.linewidth": 0.6, "text.parse_math": False}
# What is condensed to fit keeps its range as a faint shade.
PIXELS = 105  # in an inch


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
    with mpl.rc_context(CONTEXT):
        return _draw(recording, lanes, bands, colours, title, (start, end), size)


def _draw(
    recording: Recording,
    lanes: list[Lane],
    bands: Bands,
    colours: Theme,
    title: str | None,
    window: tuple[float, float],
    size: tuple[float, float] | None,
) -> Chart:
    heights = _heights(lanes)
    width = size[0] if size else 10.0
    left, right = _sides(lanes, width)
    inside = width - left - right
    bands.place_labels(inside)
    kinds = {line.kind: line.label for lane in lanes for line in lane.lines}
    swatches = legend_handles(kinds, bands.unlabelled(), colours)
    rows = legend_rows(swatches, width - left, most=1 if size else 3)
    space = LEGEND + LEGEND_ROW * (len(rows) - 1)
    head = TOP + space + (TITLE if title else 0.0) + RIBBON * bands.levels
    lines = [
        line
        for note in notes(recording)
        for line in textwrap.wrap(note, max(10, int((width - left) / LETTER)))
    ]
    foot = BOTTOM + NOTE * len(lines)
    natural = head + sum(heights) + GAP * len(lanes) + foot
    height = size[1] if size else natural
    # A size that was asked for is shared out among the lanes; heads and feet keep theirs.
    scale = (height - head - foot - GAP * len(lanes)) / sum(heights)
    if scale <= 0.15 or inside < 0.5:
        raise MonitorError(f"size={size!r}: too small for {len(lanes)} lanes, in inches")
    figure = Chart(figsize=(width, height), facecolor=colours.background)
    FigureCanvasAgg(figure)
    span = (left / width, inside / width)
    top = height - TOP
    if title:
        draw_title(figure, title, left, top, colours)
        top -= TITLE
    legend_at = top
    top -= space
    if bands.levels:
        box = (span[0], (top - RIBBON * bands.levels) / height, span[1])
        ribbon = figure.add_axes((*box, RIBBON * bands.levels / height))
        bands.ribbon(ribbon)
        top -= RIBBON * bands.levels
    last = len(lanes) - 1
    for number, (lane, tall) in enumerate(zip(lanes, heights, strict=True)):
        top -= GAP + tall * scale
        axes = figure.add_axes((span[0], top / height, span[1], tall * scale / height))
        frame_axes(axes, colours, window, number == last, tall * scale > 0.81, top=lane.top)
        bands.tint(axes)
        _lane(axes, recording, lane, colours, inside)
        _side_texts(axes, lane, colours, tall * scale, (left - NAME_AT, right - FIGURE_AT))
    draw_legend(figure, rows, left, legend_at, colours)
    for number, text in enumerate(reversed(lines)):
        foot = (0.09 + NOTE * number) / height
        figure.text(left / width, foot, text, color=colours.faint, fontsize=8.5)
    return figure


def draw_title(figure: Figure, title: str, left: float, top: float, colours: Theme) -> None:
    """Write the title; ``left`` and ``top`` in inches from the figure's lower left corner."""
    width, height = figure.get_size_inches()
    look: dict[str, Any] = {"color": colours.text, "fontsize": 12, "weight": "bold", "va": "top"}
    figure.text(left / width, top / height, title, **look)


def _sides(lanes: Sequence[Lane], width: float) -> tuple[float, float]:
    """Inches left and right of the lanes, for their names and figures."""
    names = [_inches(lane.title, TITLE_POINTS, "bold") for lane in lanes]
    names += [_inches(lane.subtitle, SUBTITLE_POINTS) for lane in lanes]
    figures = [_inches(line.note, FIGURE_POINTS) for lane in lanes for line in lane.lines]
    left = max(LEFT, min(WIDEST * width, NAME_AT + max(names, default=0.0)))
    return left, max(RIGHT, min(WIDEST * width, FIGURE_AT + max(figures, default=0.0)))


def _inches(text: str, points: float, weight: str = "normal") -> float:
    font = FontProperties(size=points, weight=weight)
    if not text:
        return 0.0
    length, _, _ = RendererAgg(1, 1, 720).get_text_width_height_descent(text, font, False)
    return 1.08 * float(length) / 720  # letters that are fitted to few pixels are wider


def _fitting(text: str, points: float, room: float, weight: str = "normal") -> dict[str, Any]:
    """A size such that a text has room, in inches."""
    size = points * room / max(room, _inches(text, points, weight))
    return {"fontsize": size, "weight": weight}


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


def _side_texts(
    axes: Axes, lane: Lane, colours: Theme, inches: float, room: tuple[float, float]
) -> None:
    """The device's name on the left, its figures on the right in the colours of their lines.

    inches: the lane's height. room: inches on the left and on the right.
    """
    step = 0.155 / inches
    middle = 0.5 + (step / 2 if lane.subtitle else 0.0)
    place: dict[str, Any] = {"transform": axes.transAxes, "va": "center", "clip_on": False}
    left = -NAME_AT / _width_inches(axes)
    look = _fitting(lane.title, TITLE_POINTS, room[0], "bold")
    axes.text(left, middle, lane.title, color=colours.text, ha="right", **look, **place)
    look = _fitting(lane.subtitle, SUBTITLE_POINTS, room[0])
    axes.text(left, middle - step, lane.subtitle, color=colours.faint, ha="right", **look, **place)
    right = 1 + FIGURE_AT / _width_inches(axes)
    first = 0.5 + step * (len(lane.lines) - 1) / 2
    for number, line in enumerate(lane.lines):
        look = _fitting(line.note, FIGURE_POINTS, room[1]) | {
            "color": colour_of(line.kind, colours)
        }
        axes.text(right, first - number * step, line.note, **look, **place)


def _width_inches(axes: Axes) -> float:
    figure = axes.figure
    assert isinstance(figure, Figure)
    return float(axes.get_position().width * figure.get_size_inches()[0])
