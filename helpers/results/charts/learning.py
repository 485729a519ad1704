"""Draw the charts of learning curves and test results."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from helpers.record.tasks import Metric
from helpers.results import by_class as by_class_of
from helpers.results import published
from helpers.results.charts.style import colour_of, labels_of, line_of, name_rows
from helpers.results.comparison import Comparison, Entry, repeats, widest
from helpers.results.learning_curves import drops, spread, targets
from helpers.training.figure_style import (
    FAINT,
    GRID,
    LONGEST,
    LONGEST_NARROW,
    NARROW,
    PAGE,
    WIDTH,
    figure_of,
    legend_below,
    panels,
    safe,
    small_multiples,
    styled,
)

_PUBLISHED = "Mean, published"
FAR_APART = 100
"""Times the smallest loss, from which on losses stand on a logarithmic axis."""


@styled
def curves(compared: Comparison, *, width: float = WIDTH) -> Figure | None:
    """Learning curves against epochs, each framework on its most devices: losses, metric."""
    return _curves(compared, "epoch", width)


@styled
def clock_curves(compared: Comparison, *, width: float = WIDTH) -> Figure | None:
    """The same against the clock: seconds of training and validation so far."""
    return _curves(compared, "clock", width)


@styled
def image_curves(compared: Comparison, *, width: float = WIDTH) -> Figure | None:
    """The same against the images trained on so far."""
    return _curves(compared, "seen", width)


_ACROSS = {
    "epoch": "epoch",
    "clock": "seconds of training and validation",
    "seen": "images trained on",
}


def _curves(compared: Comparison, across: str, width: float) -> Figure | None:
    entries = [e for e in widest(compared.entries) if e.content.get("epochs")]
    if not entries:
        return None
    metric, runs = compared.metric, repeats(compared.entries)
    figure, (left, right) = panels(2, width, 3.6)
    dropped = False
    for entry in entries:
        group = runs.get((entry.label, entry.devices or 0), [entry])
        epochs = spread(group)
        if epochs.empty:
            continue
        style = line_of(entry.label, labels_of(entries))
        x, name_of = epochs[across], entry.timed if across == "clock" else entry.run
        style |= {"markevery": max(1, len(epochs) // 12)}
        left.plot(x, epochs["valid_loss"], lw=2.2, label=safe(name_of), **style)
        left.plot(x, epochs["train_loss"], lw=1, alpha=0.75, **style | {"ms": 3})
        _metric_line(right, metric, epochs, across, label=safe(name_of), lw=2.2, **style)
        if len(group) > 1:
            ends = [epochs[f"valid_loss{end}"] for end in ("_low", "_high")]
            left.fill_between(x, *ends, color=style["color"], alpha=0.15, lw=0)
        dropped |= _mark_drops(right, metric, epochs, across, drops(entry), style["color"])
    far = _far_apart(left)
    left.set_title(f"Loss{far}: validation bold, training thin", loc="left")
    right.set_title(metric.heading, loc="left")
    for axes in (left, right):
        _across_axis(axes, across)
    if metric is compared.task.metric:
        for chance in by_class_of.chances(entries):
            _chance(right, metric.scale * chance)
    if dropped:
        left.plot([], [], ls="none", marker="v", color=FAINT, label=_DROP)
    legend_below(figure, left)
    return figure


def _far_apart(axes: Axes) -> str:
    """A logarithmic axis where the largest loss would press all others to the ground; says so.

    Few steps after random weights BatchNorm's running averages are still far off.
    """
    least, most = axes.dataLim.intervaly
    if not (np.isfinite([least, most]).all() and 0 < FAR_APART * least < most):
        return ""
    axes.set_ylim(least / 1.2, most * 1.2)
    axes.set_yscale("log")
    _few_ticks(axes.yaxis, "{:g}".format)
    return " (logarithmic)"


_DROP = "the learning rate drops"
_RUNS = "_runs"


def _metric_line(
    axes: Axes, metric: Metric, epochs: pd.DataFrame, across: str, **style: Any
) -> None:
    """The metric's medians, and a band from the least to the most of several runs."""
    values = {end: metric.scale * epochs[metric.of_epoch + end] for end in ("", "_low", "_high")}
    axes.plot(epochs[across], values[""], **style)
    if not values["_low"].equals(values["_high"]):
        axes.fill_between(
            epochs[across], values["_low"], values["_high"], color=style["color"], alpha=0.15, lw=0
        )


def _mark_drops(
    axes: Axes,
    metric: Metric,
    epochs: pd.DataFrame,
    across: str,
    after: Sequence[int],
    colour: str,
) -> bool:
    """A triangle where the rate drops; whether there is one."""
    at = epochs[epochs["epoch"].isin(after)]
    if at.empty:
        return False
    heights = metric.scale * at[metric.of_epoch]
    axes.plot(at[across], heights, ls="none", marker="v", ms=6, mfc=PAGE, color=colour, zorder=4)
    return True


def _across_axis(axes: Axes, across: str) -> None:
    axes.set_xlabel(_ACROSS[across])
    if across == "epoch":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    else:
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _thousands(value)))


def _few_ticks(axis: Axis, text: Callable[[float], str]) -> None:
    """Of a logarithmic axis: 1, 3, 10, 30, and none between."""
    axis.set_major_locator(LogLocator(subs=(1, 3)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))


def _thousands(value: float) -> str:
    """``250k``, ``1.5M``."""
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value >= 1e3 else f"{value:g}"


@styled
def devices_against_time(compared: Comparison, *, width: float = WIDTH) -> Figure | None:
    """The metric against time on each number of devices, a panel a series."""
    return _by_devices(compared, "clock", width)


@styled
def devices_against_images(compared: Comparison, *, width: float = WIDTH) -> Figure | None:
    """The metric against images on each number of devices: where lines part, more are needed."""
    return _by_devices(compared, "seen", width)


def _by_devices(compared: Comparison, across: str, width: float) -> Figure | None:
    """None where each series was run on one number of devices."""
    series: dict[str, list[list[Entry]]] = {}
    for group in repeats(compared.finished).values():
        series.setdefault(group[0].series, []).append(group)
    shown = {name: groups for name, groups in series.items() if len(groups) > 1}
    if not shown:
        return None
    metric = compared.metric
    figure, grid = small_multiples(len(shown), width, 2.7)
    dropped = False
    for axes, (name, groups) in zip(grid, shown.items(), strict=True):
        groups.sort(key=lambda group: group[0].devices or 0)
        colour = colour_of(name)
        for place, group in enumerate(groups):
            epochs = spread(group)
            if epochs.empty:
                continue
            strength = 0.3 + 0.7 * place / max(1, len(groups) - 1)
            style = {"color": colour, "alpha": strength, "lw": 1.8, "label": _RUNS}
            _metric_line(axes, metric, epochs, across, **style)
            end = epochs.iloc[-1]
            axes.annotate(
                str(group[0].devices),
                (end[across], metric.scale * end[metric.of_epoch]),
                xytext=(3, 0),
                textcoords="offset points",
                fontsize=8,
                va="center",
            )
            dropped |= _mark_drops(axes, metric, epochs, across, drops(group[0]), colour)
        for wanted in targets(compared):
            axes.axhline(metric.scale * wanted, color=FAINT, lw=0.8, ls=":")
        axes.set_title(safe(name, 30), loc="left", fontweight="bold")
    # Panels share their axes, and whose limits are set once they keep: only now is all in them.
    lines = [line for axes in grid for line in axes.lines if line.get_label() == _RUNS]
    places = [np.asarray(line.get_xdata(), dtype=float) for line in lines]
    starts, ends = ([float(place[at]) for place in places] for at in (0, -1))
    for axes in grid:
        _across_axis(axes, across)
    if across == "clock" and min(starts, default=0) > 0 and max(ends) > 8 * min(ends):
        _logarithmic(grid, min(starts), max(ends))
    grid[0].plot([], [], color=FAINT, lw=1.8, label="fewest devices faint, most strong")
    if targets(compared):
        grid[0].plot([], [], color=FAINT, lw=0.8, ls=":", label="the recipe's targets")
    if dropped:
        grid[0].plot([], [], ls="none", marker="v", color=FAINT, label=_DROP)
    figure.supylabel(metric.heading, fontsize=9, color=FAINT)
    legend_below(figure, grid[0])
    return figure


def _logarithmic(grid: Sequence[Axes], least: float, most: float) -> None:
    """Their shared horizontal axis, with room for the number next to the last curve's end."""
    grid[0].set_xlim(least / 1.2, 1.2 * most)  # first: it began at 0, which no logarithm reaches
    grid[0].set_xscale("log")
    for axes in grid:
        axes.set_xlabel(f"{axes.get_xlabel()}, on a logarithmic axis")
        _few_ticks(axes.xaxis, _thousands)


def _chance(axes: Axes, value: float) -> None:
    """Draw the line of chance, with its name at the right, because curves begin at the left."""
    axes.axhline(value, color=FAINT, lw=1, ls=":")
    axes.annotate(
        "chance",
        (0.99, value),
        xycoords=("axes fraction", "data"),
        fontsize=8,
        ha="right",
        va="bottom",
        color=FAINT,
    )


@styled
def by_class(compared: Comparison, *, width: float = WIDTH) -> Figure | None:
    """The test part by finding or class and as a whole, with 95 % intervals.

    Each framework on its most devices. For the article's network the last row is the mean that the
    article published, on 1 V100 (small) and on 4 (large).
    """
    entries = widest(compared.finished)
    if not entries:
        return None
    task, names = compared.task, by_class_of.names(compared)
    comparable, whole = published.belong(compared), by_class_of.whole_name(compared)
    rows = [*names, whole, *([_PUBLISHED] if comparable else [])]
    spread = min(0.8, 0.16 * (len(entries) - 1))
    offsets = np.linspace(-spread / 2, spread / 2, len(entries)) if len(entries) > 1 else [0.0]
    figure, axes = figure_of(1.4 + len(rows) * max(0.3, 0.11 * len(entries)), width)
    shown, scale = set(), task.metric.scale
    for entry, offset in zip(entries, offsets, strict=True):
        found = by_class_of.rows(entry) | by_class_of.whole(entry, whole)
        mark = line_of(entry.label, labels_of(entries)) | {"ls": "none"}
        for row, name in enumerate(rows):
            value, low, high = found.get(name, (None, None, None))
            if value is None:
                continue
            shown.add(name)
            if low is not None and high is not None:
                ends = [scale * low, scale * high]
                axes.plot(ends, [row + offset] * 2, color=mark["color"], lw=1.5, alpha=0.7)
            axes.plot(scale * value, row + offset, **mark)
        axes.plot([], [], label=safe(entry.run), **mark)
    if comparable:
        _published_means(axes, len(rows) - 1)
    for row, name in enumerate(names):
        if name not in shown:
            axes.annotate(
                "not computable",
                (0.5 * scale, row),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                color=FAINT,
            )
    for chance in by_class_of.chances(entries):
        axes.axvline(scale * chance, color=FAINT, lw=1, ls=":")
    for place in range(len(names), len(rows)):
        axes.axhline(place - 0.5, color=GRID, lw=1.2)
    longest = LONGEST if width >= NARROW else LONGEST_NARROW
    name_rows(axes, [safe(name.replace("_", " "), longest) for name in rows], above=0.6, below=0.6)
    unit = ", %" if task.metric.percent else ""
    axes.set_xlabel(f"test {task.metric.short}{unit}; lines: 95 % interval, dotted: chance")
    legend_below(figure, axes)
    return figure


def _published_means(axes: Axes, row: int) -> None:
    numbers = published.results().dropna(subset=["mean_auc"])
    labels = list(numbers["label"].unique())
    for label, count, mean in numbers[["label", "devices", "mean_auc"]].itertuples(index=False):
        mark = line_of(label, [label]) | {"ls": "none", "mfc": "none", "ms": 7 if count > 1 else 4}
        place = (labels.index(label) - (len(labels) - 1) / 2) * 0.8 / len(labels)
        axes.plot(mean, row + place, **mark)
    axes.plot(
        [],
        [],
        ls="none",
        marker="o",
        mfc="none",
        color=FAINT,
        label="published, V100s",
    )
