"""Draw the charts of speed, with the article's published figures."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.results import published
from helpers.results.charts.style import (
    colour_of,
    faded,
    few,
    interval,
    marker_of,
    name_rows,
)
from helpers.results.comparability import together
from helpers.results.comparison import Comparison, devices
from helpers.results.comparison_tables import IN_MINUTES, short_number
from helpers.results.ranking import ordered
from helpers.results.repeated_runs import summarise
from helpers.training.figure_style import (
    GRID,
    NARROW,
    PAGE,
    WIDTH,
    figure_of,
    heading,
    panels,
    safe,
    styled,
)

_KINDS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("files", "images_per_second", {}),
    ("synthetic", "synthetic_images_per_second", {"mfc": PAGE}),
)


@styled
def throughput(compared: Comparison, *, width: float = WIDTH) -> Figure | None:
    """Images/s of every run on files and on synthetic data, from the same rounds.

    Medians, with a line for their interval (``rates.together``).
    """
    numbers = few(ordered(compared))
    if numbers.empty:
        return None
    figure, axes = figure_of(1.0 + 0.55 * len(numbers), width)
    for place, row in enumerate(numbers.to_dict("records")):
        for number, (kind, name, style) in enumerate(_KINDS):
            mark: dict[str, Any] = {"marker": marker_of(row["label"])} | style
            text = f"{short_number(row[name])}  {kind}"
            interval(axes, row, name, place + (number - 0.5) * 0.36, text, **mark)
    name_rows(axes, _names(numbers, width), above=0.55, below=0.55)
    most = max(float(numbers[f"{name}_high"].max()) for _, name, _ in _KINDS)
    axes.set_xlim(0, 1.3 * most)
    axes.set_xlabel("images per second; the line: 95 % interval over the rounds")
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
    """Measured and published training time on the smallest and largest number of devices.

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
