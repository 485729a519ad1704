"""Draw where the seconds went, and the article's published times."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.results import published
from helpers.results.charts.style import (
    Chart,
    colour_of,
    described,
    faded,
    key,
    marker_of,
    name_rows,
    note,
    on_devices,
)
from helpers.results.comparability import marked
from helpers.results.comparison import Comparison, devices
from helpers.results.repeated_runs import summarise, widest_first
from helpers.results.runs import PARTS
from helpers.results.tables import IN_MINUTES, time_text
from helpers.training.figure_style import (
    GRID,
    PAGE,
    SHARES,
    figure_of,
    heading,
    legend_below,
    panels,
    safe,
)

_LOOKS = {
    "seconds_compiling": ("compiling", SHARES[3]),
    "seconds_training": ("training", SHARES[0]),
    "seconds_validating": ("validation", SHARES[1]),
    "seconds_other": ("other", SHARES[2]),
}


def parts(compared: Comparison) -> Chart | None:
    """What each label's seconds on its most devices went into, stacked; None without a run."""
    found, count = widest_first(compared)
    if found.empty:
        return None
    rows = found.head(count)
    alt = described(
        "Seconds of training by what they went into",
        (
            f"{on_devices(row)} {time_text(row['seconds'])}, of which "
            + ", ".join(f"{name} {time_text(row[part])}" for part, (name, _) in _LOOKS.items())
            for _, row in rows.iterrows()
        ),
    )
    return Chart("parts", "Where the seconds went", alt, lambda width: _parts(rows, width))


def _parts(rows: pd.DataFrame, width: float) -> Figure:
    """The parts are scaled to the row's whole, of which they are medians."""
    figure, axes = figure_of(1.1 + 0.26 * len(rows), width)
    whole = rows[list(PARTS)].sum(axis=1)
    long = rows["seconds"].max() >= IN_MINUTES
    scale = rows["seconds"] / whole / (60 if long else 1)
    start = 0 * scale
    places = range(len(rows))
    for part, (name, colour) in _LOOKS.items():
        length = rows[part] * scale
        axes.barh(places, length, 0.62, left=start, color=faded(colour, 0.9))
        key(axes, name, color=colour, lw=7)
        start = start + length
    for place, (end, seconds) in enumerate(zip(start, rows["seconds"], strict=True)):
        note(axes, time_text(seconds), (end, place), (5, 0))
    most = rows["devices"].max()
    names = [
        safe(row["label"]) + ("" if row["devices"] == most else f", {devices(row['devices'])}")
        for _, row in rows.iterrows()
    ]
    of = zip(names, rows["marks"], strict=True)
    name_rows(axes, [marked(name, marks) for name, marks in of], above=0.6, below=0.6)
    axes.set_xlim(0, 1.12 * float(start.max()))
    axes.set_xlabel(f"{'minutes' if long else 'seconds'} on {devices(most)}")
    legend_below(figure, axes)
    return figure


def placed(compared: Comparison) -> Chart | None:
    """Measured and published training time on the smallest and largest number of devices.

    Two panels with their own axes: other hardware, other images, so only the pattern compares.
    None for runs of another network or task than the article's.
    """
    numbers = summarise(compared)
    if numbers.empty or not published.belong(compared):
        return None
    return Chart(
        "placed",
        "Measured and published times",
        described(
            "Training time by framework and number of devices, with the times published in 2018",
            (f"{on_devices(row)} {time_text(row['seconds'])}" for _, row in numbers.iterrows()),
        ),
        lambda width: _placed(numbers, width),
        "Hardware, images and versions differ: compare the pattern, not the minutes.",
    )


def _placed(numbers: pd.DataFrame, width: float) -> Figure:
    theirs = published.results().dropna(subset=["seconds"])
    most = max(theirs["label"].nunique(), numbers["label"].nunique())
    figure, (left, right) = panels(2, width, 1.3 + 0.42 * most)
    long = numbers["seconds"].max() >= IN_MINUTES
    _dots(left, numbers, 60.0 if long else 1.0, hollow=False)
    heading(left, "Measured here")
    left.set_xlabel(f"{'minutes' if long else 'seconds'} of training, by number of devices")
    _dots(right, theirs.assign(marks=[()] * len(theirs)), 60.0, hollow=True)
    heading(right, "Published: V100, 2018")
    right.set_xlabel("minutes of training, by number of GPUs")
    return figure


def _dots(axes: Axes, numbers: pd.DataFrame, divisor: float, *, hollow: bool) -> None:
    axes.grid(False)
    axes.grid(axis="x", color=GRID, lw=0.8)
    names = []
    for y, (label, rows) in enumerate(numbers.groupby("label", sort=False)):
        colour, times = colour_of(str(label)), rows["seconds"] / divisor
        axes.plot([times.min(), times.max()], [y, y], color=faded(colour, 0.5), lw=2)
        mark: dict[str, Any] = {"marker": marker_of(str(label)), "color": colour, "ms": 7}
        for count, time in zip(rows["devices"], times, strict=True):
            axes.plot(time, y, mfc=PAGE if hollow else colour, ls="none", **mark)
            note(axes, str(count), (time, y), (0, 6), ha="center", va="baseline")
        names.append("\n".join(dict.fromkeys([safe(str(label)), *rows["marks"].sum()])))
    name_rows(axes, names, above=0.7)
    axes.set_xlim(0, 1.08 * float(numbers["seconds"].max()) / divisor)
