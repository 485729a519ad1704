"""Charts of speed: how fast, and where the article's figures lie."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from helpers.results import published
from helpers.results.charts.style import (
    MOST_ROWS,
    colour_of,
    faded,
    line_of,
    marker_of,
    name_rows,
)
from helpers.results.comparability import together
from helpers.results.comparison import Comparison, devices
from helpers.results.comparison_tables import IN_MINUTES, short_number
from helpers.results.repeated_runs import summarise
from helpers.training.figure_style import (
    FAINT,
    GRID,
    NARROW,
    PAGE,
    WIDTH,
    figure_of,
    heading,
    panels,
    safe,
    small_multiples,
    styled,
)

_KINDS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("files", "images_per_second", {"mfc": None}),
    ("synthetic", "synthetic_images_per_second", {"mfc": PAGE}),
    ("loader alone", "loader_images_per_second", {"marker": "|", "ms": 11, "mew": 2.5}),
)


@styled
def throughput(compared: Comparison, *, width: float = WIDTH) -> Figure | None:
    """Images per second of every run: from files, synthetic, and the loader alone.

    Points on a logarithmic axis, because a loader is often a hundred times ahead of the devices.
    Repeats are told by their median, with a line from the least to the most.
    """
    numbers = summarise(compared)
    if numbers.empty:
        return None
    if len(numbers) > MOST_ROWS:
        return _by_framework(numbers, width)
    figure, axes = figure_of(1.0 + 0.72 * len(numbers), width)
    names = [name for _, name, _ in _KINDS]
    least = float(numbers[[f"{name}_low" for name in names]].min().min())
    most = float(numbers[[f"{name}_high" for name in names]].max().max())
    axes.set_xscale("log")
    axes.set_xlim(least / 1.5, most * 1.5)
    for place, row in enumerate(numbers.to_dict("records")):
        for number, (kind, name, style) in enumerate(_KINDS):
            colour, y = colour_of(row["label"]), place + (number - 1) * 0.27
            low, value, high = (row[name + end] for end in ("_low", "", "_high"))
            axes.plot([low, high], [y, y], color=colour, lw=2, solid_capstyle="butt")
            mark: dict[str, Any] = {"marker": marker_of(row["label"]), "ms": 7} | style
            axes.plot(value, y, ls="none", color=colour, **mark)
            # Text stands on the side that has more room.
            right = value < (least * most) ** 0.5
            axes.annotate(
                f"{short_number(value)}  {kind}",
                (high if right else low, y),
                xytext=(8 if right else -8, 0),
                textcoords="offset points",
                ha="left" if right else "right",
                va="center",
                fontsize=8,
            )
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if most < 300 * least else (1,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    name_rows(axes, _names(numbers, width), above=0.55, below=0.55)
    axes.set_xlabel("images per second, on a logarithmic axis")
    return figure


def _by_framework(numbers: pd.DataFrame, width: float) -> Figure:
    """Of many runs: a panel a framework, images/s against devices, a line a label."""
    families = numbers["label"].map(colour_of)
    figure, grid = small_multiples(families.nunique(), width, 2.6)
    counts = sorted(numbers["devices"].unique())
    for axes, family in zip(grid, families.unique(), strict=True):
        own = numbers[families == family]
        labels = list(own["label"].unique())
        for label in labels:
            rows = own[own["label"] == label].sort_values("devices")
            for kind, name, _ in _KINDS[:2]:
                style = line_of(label, labels) | {"ms": 4}
                if kind == "synthetic":
                    style |= {"mfc": PAGE, "alpha": 0.6}
                axes.plot(rows["devices"], rows[name], lw=1.5, **style)
                ends = rows[f"{name}_low"], rows[f"{name}_high"]
                axes.vlines(rows["devices"], *ends, color=family, lw=3, alpha=0.4)
            last = rows.iloc[-1]
            axes.annotate(
                safe(str(label), 24),
                (last["devices"], last["images_per_second"]),
                xytext=(-4, -10),
                textcoords="offset points",
                ha="right",
                fontsize=7.5,
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks(counts, [str(count) for count in counts])
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("devices")
    figure.supylabel("images per second; hollow: synthetic", fontsize=9, color=FAINT)
    return figure


def _names(numbers: pd.DataFrame, width: float) -> list[str]:
    """Label, devices and marks of every row, in lines where it is narrow."""
    names = []
    for row in numbers.to_dict("records"):
        parts = [safe(row["label"]), devices(row["devices"])]
        name = ("\n" if width < NARROW else ", ").join(parts)
        names.append("\n".join([name, *row["marks"]]))
    return names


@styled
def placed(compared: Comparison, *, width: float = WIDTH) -> Figure | None:
    """Training time on fewest and most devices, ours beside the article's published one.

    Two panels with their own axes: other hardware, other images, so only the pattern compares.
    None for runs of another network or task than the article's.
    """
    numbers = summarise(compared)
    if numbers.empty or not published.belong(compared):
        return None
    theirs = published.results().dropna(subset=["seconds"])
    figure, (left, right) = panels(
        2, width, 1.3 + 0.42 * max(theirs["label"].nunique(), numbers["label"].nunique())
    )
    unit, divisor = (
        ("minutes", 60.0) if numbers["seconds"].max() >= IN_MINUTES else ("seconds", 1.0)
    )
    _dots(left, numbers, divisor, hollow=False)
    heading(left, "Measured here")
    left.set_xlabel(f"{unit} of training, by number of devices")
    _dots(right, theirs.assign(marks=[()] * len(theirs)), 60.0, hollow=True)
    heading(right, "Published: V100, 2018")
    right.set_xlabel("minutes of training, by number of GPUs")
    return figure


def _dots(axes: Axes, numbers: pd.DataFrame, divisor: float, *, hollow: bool) -> None:
    labels = list(dict.fromkeys(numbers["label"]))
    axes.grid(False)
    axes.grid(axis="x", color=GRID, lw=0.8)
    for y, label in enumerate(labels):
        of_label = numbers[numbers["label"] == label]
        times = of_label["seconds"] / divisor
        axes.plot([times.min(), times.max()], [y, y], color=faded(colour_of(label), 0.5), lw=2)
        for count, time in zip(of_label["devices"], times, strict=True):
            axes.plot(
                time,
                y,
                marker=marker_of(label),
                ms=7,
                color=colour_of(label),
                mfc=PAGE if hollow else colour_of(label),
                ls="none",
            )
            axes.annotate(
                str(count),
                (time, y),
                xytext=(0, 6),
                textcoords="offset points",
                ha="center",
                fontsize=8,
            )
    marks = {label: together(of) for label, of in numbers.groupby("label")["marks"]}
    name_rows(axes, ["\n".join([safe(label), *marks[label]]) for label in labels], above=0.7)
    axes.set_xlim(0, 1.08 * float(numbers["seconds"].max()) / divisor)
