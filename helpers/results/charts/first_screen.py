"""The picture beside the answer: what the runs show, in one small chart."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from helpers.results.charts.style import colour_of, line_of, marker_of, name_rows
from helpers.results.comparability import marked, unranked
from helpers.results.comparison import Comparison, devices
from helpers.results.comparison_tables import short_number
from helpers.results.repeated_runs import summarise
from helpers.results.scaling import split
from helpers.training.figure_style import (
    FAINT,
    NARROW,
    WIDTH,
    figure_of,
    legend_below,
    panels,
    safe,
    styled,
)

MOST = 10
"""Rows; beyond these the picture would no longer fit the first screen."""


@styled
def first(compared: Comparison, *, width: float = WIDTH) -> Figure | None:
    """The answer as a picture; None without a finished run.

    Where a target was tried on several numbers of devices: how many times the images a second, and
    how many times as soon. Else images/s of each framework on its most devices, or, if these rank
    nothing, the metric on the test part.
    """
    if split.several(compared):
        return _two_speed_ups(compared, width)
    numbers = summarise(compared)
    if numbers.empty:
        return None
    widest = numbers.sort_values("devices").groupby("label", sort=False).tail(1)
    return _rows(compared, widest.loc[numbers.index.intersection(widest.index)], width)


def _two_speed_ups(compared: Comparison, width: float) -> Figure:
    found = split.numbers(compared)
    found = found[found["devices"] >= found["base"]]
    labels = list(dict.fromkeys(found["series"]))
    metric, wanted = compared.metric, float(found["target"].iloc[0])
    figure, (left, right) = panels(2, width, 2.9)
    counts = sorted(found["devices"].unique())
    for axes, figures in ((left, ("hardware", "rate_factor")), (right, ("speed_up",) * 2)):
        values = found[figures[0]].fillna(found[figures[1]])
        for label in labels:
            own = found["series"] == label
            style = line_of(label, labels) | {"ms": 5}
            axes.plot(found["devices"][own], values[own], lw=2, label=safe(label), **style)
        base = found["devices"] / found["base"]
        ideal = pd.Series(base.to_numpy(), index=found["devices"]).groupby(level=0).max()
        axes.plot(ideal.index, ideal, color=FAINT, lw=1, ls=":", label="ideal")
        _factor_axis(axes, counts)
    target = f"{metric.short} {metric.target(wanted)}"
    left.set_title(f"Images a second until {target}, times", loc="left", fontweight="bold")
    right.set_title(f"{target} as soon, times", loc="left", fontweight="bold")
    ends = (
        min(a.get_ylim()[0] for a in (left, right)),
        max(a.get_ylim()[1] for a in (left, right)),
    )
    for axes in (left, right):
        axes.set_ylim(*ends)
    legend_below(figure, left)
    return figure


def _factor_axis(axes: Axes, counts: list[int]) -> None:
    if counts[-1] > 8 * counts[0]:
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.set_xlabel("devices")


def _bars(repeated: "pd.Series[bool]") -> str:
    """What the bars of the rows show, some of which are of repeated runs."""
    ranges = "lowest to highest of a label's runs"
    if repeated.all():
        return ranges
    return f"95 % interval, with repeats {ranges}" if repeated.any() else "95 % interval"


def _rows(compared: Comparison, numbers: pd.DataFrame, width: float) -> Figure:
    """A row a label: images/s with the repeats' range, or the metric with its interval."""
    metric, ranked = compared.task.metric, unranked(compared) is None
    figure_name = "images_per_second" if ranked else metric.figure
    ends = ("images_per_second_low", "images_per_second_high") if ranked else metric.ends
    scale = 1.0 if ranked else metric.scale
    known = numbers.dropna(subset=[figure_name]).sort_values(
        figure_name, ascending=False, kind="stable"
    )
    shown = known.head(MOST)
    figure, axes = figure_of(0.9 + 0.27 * len(shown), width)
    for place, (_, row) in enumerate(shown.iterrows()):
        colour, value = colour_of(row["label"]), scale * row[figure_name]
        low, high = (scale * row[end] for end in ends)
        if pd.isna(low):  # of repeats
            low, high = (scale * row[f"{figure_name}{end}"] for end in ("_low", "_high"))
        axes.plot([low, high], [place, place], color=colour, lw=3, alpha=0.4)
        axes.plot(value, place, marker=marker_of(row["label"]), ms=7, color=colour, ls="none")
        text = short_number(value) if ranked else metric.text(row[figure_name])
        axes.annotate(
            text,
            (max(high, value), place),
            xytext=(7, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
        )
    between = ",\n" if width < NARROW else ", "
    names = [
        marked(f"{safe(row['label'])}{between}{devices(row['devices'])}", row["marks"])
        for _, row in shown.iterrows()
    ]
    name_rows(axes, names, above=0.6, below=0.6)
    if ranked:
        axes.set_xlim(left=0)
    axes.margins(x=0.12)
    what = "images per second, from files"
    if not ranked:
        unit = ", %" if metric.percent else ""
        what = f"{metric.of_test}{unit}; bar: {_bars(shown[ends[0]].isna())}"
    more = len(known) - len(shown)
    axes.set_xlabel(what + (f"; {more} more runs below" if more else ""))
    return figure
