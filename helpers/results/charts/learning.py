"""Draw the charts of learning curves."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from helpers.record.tasks import Metric
from helpers.results.by_class import chances
from helpers.results.charts.style import (
    Chart,
    colour_of,
    described,
    key,
    line_of,
    note,
)
from helpers.results.comparison import Comparison, Entry, latest_of_each, repeats, widest
from helpers.results.learning_curves import best, drops, history, spread, targets
from helpers.results.tables import time_text
from helpers.training.figure_style import (
    FAINT,
    PAGE,
    legend_below,
    panels,
    safe,
    small_multiples,
)

FAR_APART = 100
"""Times the smallest loss, from which on losses stand on a logarithmic axis."""
_DROP = "the learning rate drops"
_RUNS = "_runs"


class _Across(NamedTuple):
    """column: of ``learning_curves.history``. label: the axis's."""

    name: str
    title: str
    column: str
    label: str


_EPOCHS = _Across("curves", "Against epochs", "epoch", "epoch")
_TIME = _Across("clock", "Against time", "clock", "seconds of training and validation")
_IMAGES = _Across("images", "Against images", "seen", "images trained on")
_ACROSS = {"epochs": _EPOCHS, "seconds": _TIME, "images": _IMAGES}
_AGAINST = {"time": _TIME, "images": _IMAGES}


def curves(compared: Comparison, across: str = "epochs") -> Chart | None:
    """Learning curves of each framework on its most devices: losses, and the metric.

    Args:
        across: against ``epochs``, ``seconds`` of training and validation, or ``images`` trained
            on so far.
    """
    entries = [e for e in widest(compared.entries) if e.content.get("epochs")]
    if not entries:
        return None
    metric, clock, parts = compared.metric, across == "seconds", []
    for entry in entries:
        end = history(entry).iloc[-1]
        parts.append(
            f"{entry.timed if clock else entry.run} ends after {time_text(end['clock'])} with "
            f"validation loss {end['valid_loss']:.3f} and {metric.short} "
            f"{metric.text(end[metric.of_epoch])}"
        )
    return Chart(
        _ACROSS[across].name,
        _ACROSS[across].title,
        described(f"Losses and validation {metric.short} against {across}", parts),
        lambda width: _curves(compared, entries, _ACROSS[across], width),
    )


def _curves(
    compared: Comparison, entries: Sequence[Entry], across: _Across, width: float
) -> Figure:
    metric, runs = compared.metric, repeats(compared.entries)
    figure, (left, right) = panels(2, width, 3.6)
    dropped = False
    for entry in entries:
        group = runs.get((entry.label, entry.devices or 0), [entry])
        epochs = spread(group)
        if epochs.empty:
            continue
        style = line_of(entry.label, [each.label for each in entries])
        x, name_of = epochs[across.column], entry.timed if across is _TIME else entry.run
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
        for chance in chances(entries):
            _chance(right, metric.scale * chance)
    if dropped:
        key(left, _DROP, ls="none", marker="v", color=FAINT)
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


def _metric_line(
    axes: Axes, metric: Metric, epochs: pd.DataFrame, across: _Across, **style: Any
) -> None:
    """The metric's medians, and a band from the least to the most of several runs."""
    x = epochs[across.column]
    value, low, high = (
        metric.scale * epochs[metric.of_epoch + end] for end in ("", "_low", "_high")
    )
    axes.plot(x, value, **style)
    if not low.equals(high):
        axes.fill_between(x, low, high, color=style["color"], alpha=0.15, lw=0)


def _mark_drops(
    axes: Axes,
    metric: Metric,
    epochs: pd.DataFrame,
    across: _Across,
    after: Sequence[int],
    colour: str,
) -> bool:
    """A triangle where the rate drops; whether there is one."""
    at = epochs[epochs["epoch"].isin(after)]
    if at.empty:
        return False
    x, heights = at[across.column], metric.scale * at[metric.of_epoch]
    axes.plot(x, heights, ls="none", marker="v", ms=6, mfc=PAGE, color=colour, zorder=4)
    return True


def _across_axis(axes: Axes, across: _Across) -> None:
    axes.set_xlabel(across.label)
    if across is _EPOCHS:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    else:
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _thousands(value)))


def _few_ticks(axis: Axis, text: Callable[[float], str]) -> None:
    """Give a logarithmic axis the ticks 1, 3, 10, 30, and none between."""
    axis.set_major_locator(LogLocator(subs=(1, 3)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))


def _thousands(value: float) -> str:
    """``250k``, ``1.5M``."""
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value >= 1e3 else f"{value:g}"


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


def devices_against(compared: Comparison, across: str) -> Chart | None:
    """The metric against ``time`` or ``images`` on each number of devices, a panel a series.

    None where each series was run on one number of devices.
    """
    series: dict[str, list[list[Entry]]] = {}
    for group in repeats(compared.finished).values():
        series.setdefault(group[0].series, []).append(group)
    shown = {name: groups for name, groups in series.items() if len(groups) > 1}
    if not shown:
        return None
    metric = compared.metric
    return Chart(
        f"devices-{across}",
        f"Validation against {across}, by number of devices",
        described(
            f"Validation {metric.short} against {across} by number of devices; best values",
            (
                f"{entry.timed} {metric.text(best(entry, metric))}"
                for entry in latest_of_each(compared.finished)
            ),
        ),
        lambda width: _by_devices(compared, shown, _AGAINST[across], width),
        "If the lines separate, more devices need more images." * (across == "images"),
    )


def _by_devices(
    compared: Comparison, shown: dict[str, list[list[Entry]]], across: _Across, width: float
) -> Figure:
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
            at = (end[across.column], metric.scale * end[metric.of_epoch])
            note(axes, str(group[0].devices), at, (3, 0))
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
    if across is _TIME and min(starts, default=0) > 0 and max(ends) > 8 * min(ends):
        _logarithmic(grid, min(starts), max(ends))
    key(grid[0], "faint: fewest devices, strong: most", color=FAINT, lw=1.8)
    if targets(compared):
        key(grid[0], "the recipe's targets", color=FAINT, lw=0.8, ls=":")
    if dropped:
        key(grid[0], _DROP, ls="none", marker="v", color=FAINT)
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
