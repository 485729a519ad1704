"""Charts of speed: how fast, what more devices bring, and where the article's figures lie."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers import published
from helpers.charts.style import (
    FAINT,
    GRID,
    INK,
    NARROW,
    PAGE,
    WIDTH,
    colour_of,
    faded,
    figure_of,
    heading,
    legend_below,
    line_of,
    marker_of,
    name_rows,
    panels,
    place_of,
    safe,
    styled,
)
from helpers.comparison import Comparison, devices
from helpers.repeats import summarise
from helpers.scaling import scaling as scaling_numbers
from helpers.scaling import several
from helpers.tables import short_number

_KINDS = (
    ("training on files", "images_per_second", 1.0),
    ("synthetic data", "synthetic_images_per_second", 0.6),
    ("loader alone", "loader_images_per_second", 0.3),
)


@styled
def throughput(compared: Comparison, *, width: float = WIDTH) -> Figure | None:
    """Images per second of every run: from files, synthetic, and the loader alone.

    Repeats are told by their median, with a line from the least to the most.
    """
    numbers = summarise(compared)
    if numbers.empty:
        return None
    labels = list(numbers["label"])
    figure, axes = figure_of(1.1 + 0.75 * len(numbers), width)
    # A loader far ahead of the devices must not squeeze what matters: its bar is cut.
    longest = 1.6 * float(numbers[[figure for _, figure, _ in _KINDS[:2]]].max().max())
    for place, row in numbers.iterrows():
        hatch = "///" if place_of(row["label"], labels) > 0 else None
        for number, (name, figure_name, strength) in enumerate(_KINDS):
            value = row[figure_name]
            y, drawn = int(str(place)) + (number - 1) * 0.26, min(value, longest)
            colour = faded(colour_of(row["label"]), strength)
            axes.barh(y, drawn, 0.24, color=colour, hatch=hatch, edgecolor=PAGE, lw=0)
            end = drawn
            if row["runs"] > 1 and value <= longest:
                ends = [row[f"{figure_name}_low"], min(row[f"{figure_name}_high"], longest)]
                axes.plot(ends, [y, y], color=INK, lw=1.2, marker="|", ms=5)
                end = max(ends)
            axes.annotate(
                f"{'» ' if value > longest else ''}{short_number(value)}  {name}",
                (end, y),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
    names = [f"{safe(row['label'])}, {devices(row['devices'])}" for _, row in numbers.iterrows()]
    if width < NARROW:
        names = [name.replace(", ", "\n") for name in names]
    name_rows(axes, names, above=0.55, below=0.55)
    axes.set_xlabel("images per second (» the bar goes on)")
    axes.set_xlim(0, axes.get_xlim()[1] * (1.2 if width >= NARROW else 1.75))
    return figure


@styled
def scaling(compared: Comparison, *, width: float = WIDTH) -> Figure | None:
    """Throughput against devices with each framework's ideal line, and parallel efficiency.

    None where everything was run on one number of devices. The published efficiency is drawn
    faint and dotted, marked as such.
    """
    if not several(compared):
        return None
    numbers = scaling_numbers(compared)
    labels = list(dict.fromkeys(numbers["label"]))
    figure, (left, right) = panels(2, width, 3.8)
    for label in labels:
        of_label = numbers[numbers["label"] == label]
        style = line_of(label, labels)
        counts = of_label["devices"]
        left.plot(counts, of_label["images_per_second"], lw=2, label=safe(label), **style)
        left.plot(counts, of_label["ideal"], color=style["color"], lw=1, ls=(0, (1, 2)), alpha=0.9)
        right.plot(counts, 100 * of_label["efficiency"], lw=2, **style)
    _published_efficiency(right)
    heading(left, "Images per second; dotted: ideal")
    heading(right, "Parallel efficiency, %")
    right.axhline(100, color=FAINT, lw=1, ls=":")
    right.set_ylim(0, max(110.0, right.get_ylim()[1]))
    left.set_ylim(bottom=0)
    left.plot([], [], color=FAINT, lw=1, ls="--", marker="x", ms=5, label=published.NAME)
    _device_ticks(left, sorted(numbers["devices"].unique()))
    _device_ticks(right, sorted({*numbers["devices"], 1, 4}))
    legend_below(figure, left)
    return figure


def _published_efficiency(axes: Axes) -> None:
    seconds = published.results().pivot(index="label", columns="devices", values="seconds")
    efficiencies = (100 * seconds[1] / seconds[4] / 4).dropna()  # some ran on four GPUs only
    for label, efficiency in efficiencies.items():
        colour = colour_of(str(label))
        axes.plot([1, 4], [100, efficiency], color=colour, lw=0.9, ls="--", alpha=0.6)
        axes.plot([4], [efficiency], color=colour, marker="x", ms=5, ls="none")


def _device_ticks(axes: Axes, counts: Sequence[int]) -> None:
    axes.set_xticks(list(counts), [str(count) for count in counts])
    axes.set_xlabel("devices")


@styled
def placed(compared: Comparison, *, width: float = WIDTH) -> Figure | None:
    """Training time on fewest and most devices, ours beside the article's published one.

    Two panels with their own axes: other hardware, other images, so only the pattern compares.
    """
    numbers = summarise(compared)
    if numbers.empty:
        return None
    theirs = published.results().dropna(subset=["seconds"])
    figure, (left, right) = panels(
        2, width, 1.3 + 0.42 * max(theirs["label"].nunique(), numbers["label"].nunique())
    )
    unit, divisor = ("minutes", 60.0) if numbers["seconds"].max() >= 120 else ("seconds", 1.0)
    _dots(left, numbers, divisor, hollow=False)
    heading(left, "Measured here")
    left.set_xlabel(f"{unit} of training, by number of devices")
    _dots(right, theirs, 60.0, hollow=True)
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
    name_rows(axes, [safe(label) for label in labels], above=0.7)
    axes.set_xlim(0, 1.08 * float(numbers["seconds"].max()) / divisor)
