"""Give each framework the same colour, marker and place in all charts.

Framework colours are Okabe and Ito's (https://jfly.uni-koeln.de/color/), which colour-blind
people can distinguish, and a violet darker than any of them. A framework has the same colour,
marker and place in every chart. A second notebook of the same framework keeps its colour and gets
broken lines or hatched bars. Ink and grid are gpumon's light theme; the report maps each of these
colours to its dark twin.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba

from helpers.frameworks import ROWS
from helpers.results.comparison import Entry
from helpers.training.figure_style import PAGE

COLOURS = {row.family: row.colour for row in ROWS}
OTHERS = "#56B4E9"
MOST_ROWS = 12
"""Of a chart with a row a run."""
MARKERS = {row.family: row.marker for row in ROWS}


def name_rows(axes: Axes, names: Sequence[str], *, above: float = 0.5, below: float = 0.5) -> None:
    """Name rows 0, 1, ... downwards, with room ``above`` the first and ``below`` the last."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 1 + below, -above)
    axes.tick_params(axis="y", length=0)


def family_of(label: str) -> str | None:
    """The framework that a label, or a run's name, begins with; None of one not known here."""
    return next((name for name in COLOURS if label.startswith(name)), None)


def colour_of(label: str) -> str:
    return COLOURS.get(family_of(label) or "", OTHERS)


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


def interval(
    axes: Axes, row: Mapping[str, Any], figure: str, y: float, text: str, **mark: Any
) -> None:
    """A row's median as a marker, with a line from its minimum to its maximum, and ``text``."""
    colour = colour_of(row["label"])
    low, value, high = (row[f"{figure}{end}"] for end in ("_low", "", "_high"))
    axes.plot([low, high], [y, y], color=colour, lw=3, alpha=0.4)
    axes.plot(value, y, ls="none", color=colour, **{"ms": 7} | mark)
    axes.annotate(
        text,
        (max(high, value), y),
        xytext=(7, 0),
        textcoords="offset points",
        va="center",
        fontsize=8.5,
    )


def few(numbers: pd.DataFrame) -> pd.DataFrame:
    """Of more rows than a chart of rows can hold, those of each label's most devices."""
    if len(numbers) <= MOST_ROWS:
        return numbers
    widest = numbers.sort_values("devices").groupby("label", sort=False).tail(1)
    return numbers[numbers.index.isin(widest.index)]


def faded(colour: str, strength: float) -> tuple[float, float, float, float]:
    """``colour`` let through: 1 is the colour itself, 0 nothing. Right on light and on dark."""
    return to_rgba(colour, strength)


def cycle(colours: Sequence[str], count: int) -> list[str]:
    return [colours[i % len(colours)] for i in range(count)]
