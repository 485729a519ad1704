"""This module draws the phases of a chart as a ribbon and as tinted bands, and the legend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gpumon import stats
from gpumon.drawing.lanes import MOST_LEVELS, labels, merged_marks
from gpumon.drawing.style import KINDS, Theme, colour_of, phase_colours
from gpumon.recording import Mark

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LETTER = 0.078  # inches, a mean letter at the ribbon's size
MOST_LABELS = 60
LONGEST = 80
"""Letters of a phase's name."""


class Bands:
    """The phases that show in a window, with their colours.

    A phase marked by several processes at once is drawn once, over the union of their times.
    """

    def __init__(
        self,
        marks: Sequence[Mark],
        window: tuple[float, float],
        theme: Theme,
        colours: dict[str, str] | None = None,
    ) -> None:
        self.window = window
        self.theme = theme
        self.marks = [
            mark
            for mark in merged_marks(marks)
            if mark.depth < MOST_LEVELS and mark.start < window[1] and mark.end > window[0]
        ]
        names = dict.fromkeys(m.name for m in sorted(self.marks, key=lambda m: (m.depth, m.start)))
        chosen = colours or phase_colours(list(names), theme)
        self.colours = {name: chosen[name] for name in names}
        self.levels = 1 + max((mark.depth for mark in self.marks), default=-1)
        self.labelled: set[str] = set()
        self._texts: list[tuple[float, int, str]] = []

    def tint(self, axes: Axes) -> None:
        """Colour the outermost phases faintly behind a lane."""
        for name, colour in self.colours.items():
            if "/" not in name:
                spans = [(m.start, m.end - m.start) for m in self.marks if m.name == name]
                axes.broken_barh(
                    spans,
                    (-10, 200),
                    facecolor=colour,
                    alpha=self.theme.tint,
                    zorder=0,
                    linewidth=0,
                )

    def place_labels(self, inches: float) -> None:
        """Decide which phases have room for their name in a ribbon so many inches wide."""
        start, end = self.window
        counts = Counter(mark.name for mark in self.marks)
        for mark in self.marks:
            if counts[mark.name] > MOST_LABELS:
                continue
            left, right = self._seen(mark)
            room = (right - left) / (end - start) * inches
            fitting = (form for form in labels(mark) if len(form) * LETTER + 0.05 <= room)
            if text := next(fitting, ""):
                self._texts.append(((left + right) / 2, mark.depth, text))
                self.labelled.add(mark.name)

    def _seen(self, mark: Mark) -> stats.Span:
        """The longest part of a phase that no phase of another process is drawn over."""
        order = list(self.colours)
        above = set(order[order.index(mark.name) + 1 :])
        over = [(m.start, m.end) for m in self.marks if m.depth == mark.depth and m.name in above]
        left, right = max(mark.start, self.window[0]), min(mark.end, self.window[1])
        free, begin = [], left
        for start, end in stats.union(over):
            free.append((begin, min(start, right)))
            begin = max(begin, end)
        free.append((begin, right))
        return max(free, key=lambda span: span[1] - span[0])

    def ribbon(self, axes: Axes) -> None:
        """Draw the segments, and the names settled on, into axes as high as the levels."""
        axes.set_xlim(*self.window)
        axes.set_ylim(self.levels, 0)
        axes.axis("off")
        for name, colour in self.colours.items():
            spans = [(m.start, m.end - m.start) for m in self.marks if m.name == name]
            axes.broken_barh(
                spans,
                (name.count("/") + 0.06, 0.88),
                facecolor=colour,
                edgecolor=self.theme.background,
                linewidth=0.6 if len(spans) < 300 else 0,
            )
        colour = self.theme.phase_text
        for middle, depth, text in self._texts:
            axes.text(
                middle, depth + 0.53, text, ha="center", va="center", fontsize=8, color=colour
            )

    def unlabelled(self) -> list[tuple[str, str]]:
        """Names (with colours) that found no room in the ribbon and belong in the legend."""
        return [
            (name, colour) for name, colour in self.colours.items() if name not in self.labelled
        ]


def legend_handles(
    kinds: dict[str, str], phases: Iterable[tuple[str, str]], colours: Theme
) -> list[Any]:
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
