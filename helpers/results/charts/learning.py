"""Draw the learning curves."""

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from helpers.results.by_class import chances
from helpers.results.charts.style import Chart, described, line_of
from helpers.results.comparability import flagged
from helpers.results.comparison import Comparison, Entry, repeats, widest
from helpers.results.learning_curves import history, spread, targets
from helpers.results.tables import time_text
from helpers.training.figure_style import FAINT, legend_below, panels, safe

_ACROSS = {"clock": "seconds of training and validation", "epoch": "epoch"}
"""The name of the axis for each column of ``learning_curves.history``."""


def curves(compared: Comparison) -> Chart | None:
    """Validation after each epoch, against time and epochs, on each label's most devices."""
    entries, metric = (
        [e for e in widest(compared.entries) if e.content.get("epochs")],
        compared.metric,
    )
    if not entries:
        return None
    ends = [(entry, history(entry).iloc[-1]) for entry in entries]
    alt = described(
        f"Validation {metric.short} against time and epochs",
        (
            f"{entry.timed} ends after {time_text(end['clock'])} with {metric.short} "
            f"{metric.text(end[metric.of_epoch])}"
            for entry, end in ends
        ),
    )
    title = f"{metric.heading}, against time and epochs"
    return Chart("curves", title, alt, lambda width: _curves(compared, entries, width))


def _curves(compared: Comparison, entries: Sequence[Entry], width: float) -> Figure:
    metric = compared.metric
    figure, found = panels(2, width, 3.0)
    for axes, (column, label) in zip(found, _ACROSS.items(), strict=True):
        for entry, epochs, style in _lines(compared, entries):
            axes.plot(
                epochs[column],
                metric.scale * epochs[metric.of_epoch],
                lw=2,
                label=safe(flagged(entry.label, entry.flags)),
                **style,
            )
            _band(axes, epochs[column], metric.scale * epochs.filter(like=metric.of_epoch), style)
        for wanted in targets(compared):
            axes.axhline(metric.scale * wanted, color=FAINT, lw=0.8, ls="--")
            _named(axes, "target", metric.scale * wanted)
        for chance in chances(entries) if metric is compared.task.metric else ():
            axes.axhline(metric.scale * chance, color=FAINT, lw=1, ls=":")
            _named(axes, "chance", metric.scale * chance)
        axes.set_xlabel(label)
    found[0].set_xlim(left=0)
    found[0].xaxis.set_major_locator(MaxNLocator(5))
    found[1].xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_below(figure, found[0])
    return figure


def _lines(
    compared: Comparison, entries: Sequence[Entry]
) -> Iterator[tuple[Entry, pd.DataFrame, dict[str, Any]]]:
    """Each entry with the medians of its repeats by epoch, and its style."""
    runs = repeats(compared.entries)
    for entry in entries:
        epochs = spread(runs.get((entry.label, entry.devices or 0), [entry]))
        if not epochs.empty:
            style = line_of(entry.label, [each.label for each in entries])
            yield entry, epochs, style | {"markevery": max(1, len(epochs) // 12)}


def _band(axes: Axes, x: "pd.Series[float]", ends: pd.DataFrame, style: dict[str, Any]) -> None:
    """The band from the minimum to the maximum of several runs."""
    low, high = (ends.filter(regex=f"{end}$").iloc[:, 0] for end in ("_low", "_high"))
    if not low.equals(high):
        axes.fill_between(x, low, high, color=style["color"], alpha=0.15, lw=0)


def _named(axes: Axes, text: str, value: float) -> None:
    """The name of a horizontal line, at the right, because curves begin at the left."""
    at: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "bottom"}
    axes.annotate(text, (0.99, value), fontsize=8, color=FAINT, **at)
