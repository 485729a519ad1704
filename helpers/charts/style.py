"""What all charts share: colours, markers, axes, and a figure that shows itself.

Framework colours are Okabe and Ito's (https://jfly.uni-koeln.de/color/), which colour-blind
people can tell apart; a framework has the same colour, marker and place in every chart. A second
notebook of the same framework keeps its colour and gets broken lines or hatched bars. Ink and
grid are gpumon's light theme; the report maps every one of these colours to its dark twin.
"""

import io
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from gpumon.drawing.style import THEMES
from helpers.comparison import Entry

COLOURS = {
    "PyTorch": "#D55E00",
    "Keras": "#CC79A7",
    "TensorFlow": "#E69F00",
    "MXNet": "#0072B2",
    "Chainer": "#009E73",
}
OTHERS = "#56B4E9"
MARKERS = {"PyTorch": "o", "Keras": "s", "TensorFlow": "^", "MXNet": "D", "Chainer": "v"}
INK, FAINT, GRID = THEMES["light"].text, THEMES["light"].faint, THEMES["light"].grid
PAGE = THEMES["light"].background
SHARES = ("#3C6E91", "#E3A34A", "#A9B7C2", "#B4544F", "#7C6BA6", "#6F9A4E")
"""Parts of a whole: none of them is a framework's colour."""
WIDTH = 9.0
"""Inches: a notebook's column."""
LONGEST = 40
"""Letters of a label."""
NARROW = 6.0
"""Narrower than this, what stands side by side stands below each other."""

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

Drawing = TypeVar("Drawing", bound=Callable[..., Any])


class Chart(Figure):
    """A figure that shows itself in a notebook, with or without ``%matplotlib inline``."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()


def styled(draw: Drawing) -> Drawing:
    """``draw`` with this module's settings, whatever the session's own are."""

    @wraps(draw)
    def inside(*given: Any, **named: Any) -> Any:
        with mpl.rc_context(_RC):  # type: ignore[arg-type]
            return draw(*given, **named)

    return inside  # type: ignore[return-value]


def figure_of(height: float, width: float, grid: str = "x") -> tuple[Figure, Axes]:
    """A chart with one plain axes."""
    figure = Chart(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    plain_axes(axes, grid=grid)
    return figure, axes


def panels(count: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """A chart with ``count`` plain axes: side by side, or below each other where it is narrow."""
    stacked = width < NARROW
    size = (width, height * count) if stacked else (width, height)
    figure = Chart(figsize=size, layout="constrained")
    grid = figure.subplots(count if stacked else 1, 1 if stacked else count, squeeze=False)
    found = list(grid.flat)
    for axes in found:
        plain_axes(axes, grid="y")
    return figure, found


def plain_axes(axes: Axes, grid: str) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color=GRID, lw=0.8)  # type: ignore[arg-type]
    axes.set_axisbelow(True)


def name_rows(axes: Axes, names: Sequence[str], *, above: float = 0.5, below: float = 0.5) -> None:
    """Name rows 0, 1, ... downwards, with room ``above`` the first and ``below`` the last."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 1 + below, -above)
    axes.tick_params(axis="y", length=0)


def heading(axes: Axes, text: str) -> None:
    axes.set_title(text, loc="left", fontweight="bold")


def legend_below(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    room = 0.5 + 0.085 * max(len(label) for label in labels)
    columns = max(1, min(int(figure.get_figwidth() / room), 4, len(labels)))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)


def colour_of(label: str) -> str:
    return next((c for name, c in COLOURS.items() if label.startswith(name)), OTHERS)


def marker_of(label: str) -> str:
    return next((m for name, m in MARKERS.items() if label.startswith(name)), "P")


def line_of(label: str, labels: Sequence[str]) -> dict[str, Any]:
    """Colour and marker by framework; broken where the same framework has another line already."""
    place = place_of(label, labels)
    styles = ("-", "--", "-.", ":")
    return {
        "color": colour_of(label),
        "marker": marker_of(label),
        "ms": 6,
        "mfc": colour_of(label) if place == 0 else PAGE,
        "ls": styles[place % len(styles)],
    }


def place_of(label: str, labels: Sequence[str]) -> int:
    """0 for a framework's first notebook, 1 for its second."""
    family = dict.fromkeys(name for name in labels if colour_of(name) == colour_of(label))
    return list(family).index(label)


def labels_of(entries: Sequence[Entry]) -> list[str]:
    return [entry.label for entry in entries]


def faded(colour: str, strength: float) -> tuple[float, float, float, float]:
    """``colour`` let through: 1 is the colour itself, 0 nothing. Right on light and on dark."""
    return to_rgba(colour, strength)


def cycle(colours: Sequence[str], count: int) -> list[str]:
    return [colours[i % len(colours)] for i in range(count)]


def safe(text: str) -> str:
    """Text from a record: one line, no longer than a label can be, never read as a formula."""
    line = " ".join(text.split())
    return (line if len(line) <= LONGEST else line[: LONGEST - 1] + "…").replace("$", r"\$")
