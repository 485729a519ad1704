"""This module draws the chart's legend, in rows that fit the chart's width."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gpumon.drawing.style import KINDS, Theme, colour_of

ROW = 0.2  # inches
LETTER = 0.066
SWATCH = 0.44
LONGEST = 80
"""Letters of a phase's name."""


def handles(kinds: dict[str, str], phases: Iterable[tuple[str, str]], colours: Theme) -> list[Any]:
    """Swatches for lines (kind to label) and for phases (name, colour) without a label."""
    made: list[Any] = []
    for kind, look in KINDS.items():
        if kind not in kinds or not look.named:
            continue
        colour = colour_of(kind, colours)
        if look.area:
            made.append(Patch(facecolor=colour, alpha=0.45, edgecolor=colour, label=kinds[kind]))
        else:
            made.append(
                Line2D(
                    [], [], color=colour, linewidth=1.4, linestyle=stroke(kind), label=kinds[kind]
                )
            )
    return made + [Patch(facecolor=colour, label=_short(name)) for name, colour in phases]


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


def stroke(kind: str) -> Any:
    """matplotlib's line style of a kind of line."""
    return (0, KINDS[kind].dash) if KINDS[kind].dash else "-"


def rows(entries: Sequence[Any], inches: float, most: int = 3) -> list[list[Any]]:
    """The entries in rows no wider than so many inches; what needs more rows is left out."""
    lines: list[list[Any]] = [[]]
    used = 0.0
    for entry in entries:
        wide = SWATCH + LETTER * len(entry.get_label())
        if lines[-1] and used + wide > inches:
            lines.append([])
            used = 0.0
        lines[-1].append(entry)
        used += wide
    return lines[:most]


def draw(
    figure: Figure, lines: Sequence[Sequence[Any]], left: float, top: float, colours: Theme
) -> None:
    """Put the rows into a figure; ``left`` and ``top`` in inches from its lower left corner."""
    width, height = figure.get_size_inches()
    for number, line in enumerate(lines):
        legend = figure.legend(
            handles=list(line),
            loc="upper left",
            bbox_to_anchor=(left / width, (top - number * ROW) / height),
            ncol=len(line) or 1,
            frameon=False,
            fontsize=8,
            borderpad=0,
            borderaxespad=0,
            handlelength=1.4,
            columnspacing=1.5,
            handletextpad=0.5,
        )
        for text in legend.get_texts():
            text.set_color(colours.faint)
