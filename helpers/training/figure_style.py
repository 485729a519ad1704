"""The common style of all figures, and a figure class that displays itself."""

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpumon.drawing.chart import Chart
from gpumon.drawing.style import THEMES

INK, FAINT, GRID = THEMES["light"].text, THEMES["light"].faint, THEMES["light"].grid
PAGE = THEMES["light"].background
SHARES = ("#3C6E91", "#E3A34A", "#A9B7C2", "#B4544F", "#7C6BA6", "#6F9A4E")
"""Parts of a whole: none of them is a framework's colour."""
WIDTH, NARROW = 9.0, 6.0
"""Inches: a notebook's column; in less, what stands side by side stands below each other."""
LONGEST = 40
"""Letters of a label."""

_RC = {
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "text.color": INK,
    "axes.labelcolor": FAINT,
    "axes.edgecolor": FAINT,
    "axes.titlecolor": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "figure.facecolor": PAGE,
    "axes.facecolor": "none",
    "hatch.linewidth": 0.8,
}

styled = mpl.rc_context(_RC)  # type: ignore[arg-type]
"""Decorate a function that draws: with this module's settings, whatever the session's own are."""


def figure_of(height: float, width: float, grid: str = "x") -> tuple[Figure, Axes]:
    """A chart with one plain axes."""
    figure, (axes,) = panels(1, width, height, grid)
    return figure, axes


def panels(count: int, width: float, height: float, grid: str = "y") -> tuple[Figure, list[Axes]]:
    """A chart with ``count`` plain axes: side by side, or below each other where it is narrow."""
    rows, columns = (count, 1) if width < NARROW else (1, count)
    figure = Chart(figsize=(width, height * rows), layout="constrained")
    found = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in found:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis=grid, color=GRID, lw=0.8)  # type: ignore[arg-type]
        axes.set_axisbelow(True)
    return figure, found


def heading(axes: Axes, text: str) -> None:
    axes.set_title(text, loc="left", fontweight="bold")


def safe(text: str) -> str:
    """Untrusted text as one line, shortened to a label's length, and never read as a formula."""
    line = " ".join(text.split())
    return (line if len(line) <= LONGEST else line[: LONGEST - 1] + "…").replace("$", r"\$")


def legend_below(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    room = 0.5 + 0.085 * max(len(label) for label in labels)
    columns = max(1, min(int(figure.get_figwidth() / room), 4, len(labels)))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
