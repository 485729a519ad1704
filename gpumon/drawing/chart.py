"""This module draws lanes with matplotlib: the chart of a trace, and of several."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from gpumon.drawing.lanes import Lane, comparison_lanes, labels, lanes_of, merged_spans, steps
from gpumon.drawing.style import KINDS, Theme, colour_of, phase_colours, theme
from gpumon.errors import MonitorError
from gpumon.recording import Recording, Span
from gpumon.trace_notes import notes
from gpumon.words import time_text

WIDTH, INSIDE = 10.0, 7.7
"""Inches of a chart, and about those of its lanes."""
RIBBON, HEAD, TITLE, NOTE, GAP, RUN = 0.21, 0.8, 0.3, 0.19, 0.07, 0.82  # inches
NAME_AT, NUMBER_AT, LINE = 33, 7, 11.2
"""Points between a lane and what stands at its sides, and from line to line."""
LONG = 26
"""Letters from which a text at a lane's side is set smaller."""
LETTER, RIBBON_LETTER, LEGEND_LETTER, SWATCH = 0.072, 0.078, 0.066, 0.5
"""Inches: mean letters of a note, of the ribbon and of the legend, and a swatch there."""
TITLE_LETTERS, LONGEST = 13, 80
"""Letters of a line of a run's name, and of a phase's name in the legend."""
MOST_LABELS = 60
STEPS = 50
"""Steps of a line to an inch: more would be a smear. Their range stays as a faint shade."""
LEGEND: Any = {"loc": "lower left", "bbox_to_anchor": (0, 1), "frameon": False, "fontsize": 8}
LEGEND |= {"borderaxespad": 0.2, "borderpad": 0.2}
LEGEND |= {"handlelength": 1.4, "columnspacing": 1.5, "handletextpad": 0.5}
# A name is not a formula, whatever dollar signs it contains.
CONTEXT: Any = {"font.size": 8.5, "axes.linewidth": 0.6, "text.parse_math": False}


class Chart(Figure):
    """A matplotlib Figure that shows itself in a notebook, once, and leaves pyplot alone."""

    def _repr_png_(self) -> bytes:
        data = io.BytesIO()
        self.savefig(data, format="png", dpi=130)
        return data.getvalue()


def draw(
    recording: Recording,
    *,
    theme: str = "light",
    title: str | None = None,
    devices: Sequence[str] | None = None,
    series: Sequence[str] = (),
) -> Chart:
    """Draw a recording; see :meth:`gpumon.Trace.plot`."""
    lanes = lanes_of(recording, series)
    if devices is not None:
        lanes = [lane for lane in lanes if lane.name in devices]
        if not lanes:
            known = ", ".join(device["name"] for device in recording.devices)
            raise MonitorError(f"devices={list(devices)!r}: the trace has {known}")
    gpus = len({lane.name for lane in lanes if not lane.host})
    # Lanes get lower as there are more of them, so that eight GPUs still fit a page.
    tall = 1.25 if gpus <= 2 else 0.95 if gpus <= 4 else 0.66
    heights = [(min(tall, 0.8) if gpus else 1.1) if lane.host else tall for lane in lanes]
    spans, window = merged_spans(recording.spans), (0.0, max(recording.end, 1e-3))
    return _draw(lanes, heights, spans, window, theme, title, notes(recording))


def compare(
    recordings: Mapping[str, Recording],
    *,
    theme: str = "light",
    title: str | None = None,
    align: str | None = None,
    until: Sequence[str] = (),
) -> Chart:
    """Draw several recordings; see :func:`gpumon.compare`."""
    lanes, window = comparison_lanes(recordings, align, until)
    return _draw(lanes, [RUN] * len(lanes), [], window, theme, title, [])


def _draw(
    lanes: Sequence[Lane],
    heights: Sequence[float],
    spans: Sequence[Span],
    window: tuple[float, float],
    theme_name: str,
    title: str | None,
    said: Sequence[str],
) -> Chart:
    """Draw lanes of these heights in inches, with phases of their own or below the common ones."""
    colours = theme(theme_name)
    bands = [_seen(spans, window), *(_seen(lane.phases or [], window) for lane in lanes)]
    outer = dict.fromkeys(span.name for band in bands for span in band)
    tints = phase_colours(list(outer), colours)
    ratios: list[float] = []
    places: list[int] = []  # of the lanes among the rows
    for number, band in enumerate(bands):
        if band:
            ratios.append(RIBBON * (1 + max(span.depth for span in band)))
        if number:
            places.append(len(ratios))
            ratios.append(heights[number - 1])
    wrapped = [line for note in said for line in textwrap.wrap(note, int(WIDTH / LETTER))]
    fixed = HEAD + TITLE * bool(title) + NOTE * len(wrapped) + GAP * len(ratios)
    with mpl.rc_context(CONTEXT):
        figure = Chart(
            figsize=(WIDTH, fixed + sum(ratios)),
            facecolor=colours.background,
            layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.02, hspace=0.01),
        )
        FigureCanvasAgg(figure)
        rows = figure.subplots(len(ratios), 1, squeeze=False, height_ratios=ratios)[:, 0]
        labelled: set[str] = set()
        for number, band in enumerate(bands):
            if band:
                place = places[number - 1] - 1 if number else 0
                labelled |= _ribbon(rows[place], band, window, tints, colours)
        for place, lane, tall in zip(places, lanes, heights, strict=True):
            _frame(rows[place], lane, window, colours, lane is lanes[-1], tall > RUN)
            for name, colour in tints.items():
                tinted = spans if lane.phases is None else lane.phases
                bars = [
                    (m.start, m.end - m.start) for m in tinted if m.name == name and not m.depth
                ]
                look: Any = {"facecolor": colour, "alpha": colours.tint, "zorder": 0}
                rows[place].broken_barh(bars, (-10, 200), linewidth=0, **look)
            _lane(rows[place], lane, colours)
        _legend(rows[0], lanes, {n: c for n, c in tints.items() if n not in labelled}, colours)
        if title:
            look = {"ha": "left", "fontsize": 12, "weight": "bold", "color": colours.text}
            figure.suptitle(title, x=0.01, **look)
        if wrapped:
            look = {"ha": "left", "fontsize": 8.5, "color": colours.faint}
            figure.supxlabel("\n".join(wrapped), x=0.01, **look)
    return figure


def _seen(spans: Sequence[Span], window: tuple[float, float]) -> list[Span]:
    return [span for span in spans if span.start < window[1] and span.end > window[0]]


def _ribbon(
    axes: Axes,
    spans: Sequence[Span],
    window: tuple[float, float],
    tints: dict[str, str],
    colours: Theme,
) -> set[str]:
    """Draw phases with their names; gives those with room for their name."""
    axes.set_xlim(*window)
    axes.set_ylim(1 + max(span.depth for span in spans), 0)
    axes.axis("off")
    labelled = set()
    for layer, name in enumerate(dict.fromkeys(span.name for span in spans)):
        own = [span for span in spans if span.name == name]
        bars = [(span.start, span.end - span.start) for span in own]
        look: Any = {"facecolor": tints[name], "edgecolor": colours.background, "zorder": layer}
        width = 0.6 if len(bars) < 300 else 0
        axes.broken_barh(bars, (own[0].depth + 0.06, 0.88), linewidth=width, **look)
        for span in own if len(own) <= MOST_LABELS else []:
            left, right = max(span.start, window[0]), min(span.end, window[1])
            room = (right - left) / (window[1] - window[0]) * INSIDE
            fitting = (form for form in labels(span) if len(form) * RIBBON_LETTER + 0.05 <= room)
            if text := next(fitting, ""):
                labelled.add(name)
                look = {"ha": "center", "va": "center", "fontsize": 8, "color": colours.phase_text}
                # Covered by the phase of another process that is drawn over this one.
                axes.text((left + right) / 2, span.depth + 0.53, text, zorder=layer + 0.5, **look)
    return labelled


def _frame(
    axes: Axes, lane: Lane, window: tuple[float, float], colours: Theme, last: bool, tall: bool
) -> None:
    """The empty lane with its names: scale, grid, and below the last one the time."""
    axes.set_facecolor(colours.lane)
    axes.set_xlim(*window)
    axes.set_ylim(0, 104)
    axes.set_yticks([0, 50, 100], ["0" if tall else "", "", lane.top])
    axes.grid(axis="y", color=colours.grid, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=colours.faint, length=0, labelsize=7.5, pad=3)
    axes.spines[:].set_visible(False)
    length = window[1] - window[0]
    axes.xaxis.set_major_locator(
        MaxNLocator(9, steps=[1, 2, 3, 6, 10] if length > 120 else [1, 2, 5, 10])
    )
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: time_text(value, length)))
    axes.tick_params(axis="x", labelbottom=last, labelsize=8)
    bold = {
        "fontsize": 9 - 0.5 * (lane.phases is not None),
        "weight": "bold",
        "color": colours.text,
    }
    below = {"fontsize": 7, "color": colours.faint}
    titles, subtitles = [lane.title], [lane.subtitle]
    if lane.phases is not None:
        titles = textwrap.wrap(lane.title, TITLE_LETTERS, max_lines=3, placeholder=" …")
        subtitles = textwrap.wrap(lane.subtitle, TITLE_LETTERS + 3)
    names = [(text, bold) for text in titles] + [(text, below) for text in subtitles]
    texts = [(line.note, {"color": colour_of(line.kind, colours)}) for line in lane.lines]
    _side_texts(axes, 0, -NAME_AT, "right", names)
    _side_texts(axes, 1, NUMBER_AT, "left", [*texts, (lane.note, {"color": colours.faint})])


def _side_texts(axes: Axes, side: int, away: float, align: str, texts: Sequence[Any]) -> None:
    """Lines of text, each with how it looks, about the middle of one side of a lane."""
    shown = [(text, look) for text, look in texts if text]
    for number, (text, look) in enumerate(shown):
        above = LINE * ((len(shown) - 1) / 2 - number)
        points = look.get("fontsize", 8) * min(1, LONG / len(text))
        where: Any = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "center"}
        style = {**look, "fontsize": points}
        axes.annotate(text, (side, 0.5), (away, above), ha=align, **where, **style)


def _lane(axes: Axes, lane: Lane, colours: Theme) -> None:
    for line in lane.lines:
        colour, look = colour_of(line.kind, colours), KINDS[line.kind]
        times, mean, low, high = steps(lane, line, round(STEPS * INSIDE))
        # Each value holds from its time to the next, and is broken where unknown.
        corners = np.repeat(np.append(times, lane.end), 2)[1:-1]
        mean, low, high = (np.repeat(each, 2) for each in (mean, low, high))
        if look.area:
            axes.fill_between(corners, mean, color=colour, alpha=0.30, linewidth=0)
            if not np.array_equal(low, high, equal_nan=True):
                shade = 0.14 if line.low is None else 0.22
                axes.fill_between(corners, low, high, color=colour, alpha=shade, linewidth=0)
        width = 0.9 if look.area or lane.phases is not None else 1.2
        axes.plot(corners, mean, color=colour, linewidth=width, linestyle=_stroke(line.kind))
    for number, (moment, text, kind) in enumerate(lane.marks):
        colour, above = getattr(colours, kind), 80 - 14 * (number % 3)
        axes.axvline(moment, linewidth=1, linestyle=(0, (3, 2)), color=colour)
        axes.text(moment, above, f" {text}", fontsize=7.5, clip_on=True, color=colour)
    if lane.reason:
        middle: Any = {"transform": axes.transAxes, "ha": "center", "va": "center"}
        axes.text(0.5, 0.5, lane.reason, color=colours.faint, fontsize=8, **middle)


def _legend(axes: Axes, lanes: Sequence[Lane], phases: dict[str, str], colours: Theme) -> None:
    """At most three rows above some axes: lines, and phases without a label."""
    kinds = {line.kind: line.label for lane in lanes for line in lane.lines if line.label}
    handles: list[Any] = []
    for kind in KINDS:
        if kind in kinds:
            colour = colour_of(kind, colours)
            area = Patch(facecolor=colour, alpha=0.45, edgecolor=colour, label=kinds[kind])
            look: Any = {"color": colour, "linewidth": 1.4, "linestyle": _stroke(kind)}
            handles.append(area if KINDS[kind].area else Line2D([], [], label=kinds[kind], **look))
    for name, colour in phases.items():
        short = name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"
        handles.append(Patch(facecolor=colour, label=short))
    if handles:
        longest = max(len(handle.get_label()) for handle in handles)
        columns = max(1, int(INSIDE / (SWATCH + LEGEND_LETTER * longest)))
        axes.legend(
            handles=handles[: 3 * columns],
            ncols=columns,
            labelcolor=colours.faint,
            **LEGEND,
        )


def _stroke(kind: str) -> Any:
    """matplotlib's line style of a kind of line."""
    return (0, KINDS[kind].dash) if KINDS[kind].dash else "-"
