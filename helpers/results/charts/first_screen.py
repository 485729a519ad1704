"""Draw the small chart next to the report's first answer."""

import pandas as pd
from matplotlib.figure import Figure

from helpers.record.tasks import Metric
from helpers.results.charts.style import interval, marker_of, name_rows
from helpers.results.comparability import marked
from helpers.results.comparison import Comparison, devices
from helpers.results.comparison_tables import short_number
from helpers.results.ranking import RATE, field
from helpers.results.repeated_runs import summarise
from helpers.training.figure_style import NARROW, WIDTH, figure_of, safe, styled

MOST = 10
"""Rows; beyond these the picture would no longer fit the first screen."""


@styled
def first(compared: Comparison, *, width: float = WIDTH) -> Figure | None:
    """The answer as a picture; None without a finished run.

    Images/s on files of the ranked runs, or, if nothing is ranked, the metric on the test part of
    each framework on its most devices.
    """
    rows = field(compared)
    if not rows.empty:
        return _rates(rows, width)
    numbers = summarise(compared)
    if numbers.empty:
        return None
    widest = numbers.sort_values("devices").groupby("label", sort=False).tail(1)
    return _metrics(compared, numbers[numbers.index.isin(widest.index)], width)


def _rates(rows: pd.DataFrame, width: float) -> Figure:
    shown = rows.head(MOST)
    figure, axes = figure_of(0.9 + 0.27 * len(shown), width)
    for place, row in enumerate(shown.to_dict("records")):
        text = short_number(row[RATE])
        interval(axes, row, RATE, place, text, marker=marker_of(row["label"]))
    names = [marked(safe(row["label"]), row["marks"]) for _, row in shown.iterrows()]
    name_rows(axes, names, above=0.6, below=0.6)
    axes.set_xlim(0, 1.15 * float(shown[f"{RATE}_high"].max()))
    on = devices(shown["devices"].iloc[0])
    axes.set_xlabel(f"images per second on files, {on}{_more(rows, shown)}")
    return figure


def _more(rows: pd.DataFrame, shown: pd.DataFrame) -> str:
    more = len(rows) - len(shown)
    return f"; {more} more runs below" if more else ""


def _bars(repeated: "pd.Series[bool]") -> str:
    """What the bars of the rows show, some of which are of repeated runs."""
    ranges = "lowest to highest of a label's runs"
    if repeated.all():
        return ranges
    return f"95 % interval, with repeats {ranges}" if repeated.any() else "95 % interval"


def _metrics(compared: Comparison, numbers: pd.DataFrame, width: float) -> Figure:
    """A row a label: the metric with its interval, or with the range of its repeats."""
    metric = compared.task.metric
    known = numbers.dropna(subset=[metric.figure]).sort_values(
        metric.figure, ascending=False, kind="stable"
    )
    shown = known.head(MOST)
    figure, axes = figure_of(0.9 + 0.27 * len(shown), width)
    for place, row in enumerate(shown.to_dict("records")):
        ends = metric.ends if pd.notna(row[metric.ends[0]]) else _of_runs(metric)
        scaled = {
            f"{metric.figure}{end}": metric.scale * row[name]
            for end, name in zip(("", "_low", "_high"), (metric.figure, *ends), strict=True)
        }
        text = metric.text(row[metric.figure])
        mark = marker_of(row["label"])
        interval(axes, row | scaled, metric.figure, place, text, marker=mark)
    between = ",\n" if width < NARROW else ", "
    names = [
        marked(f"{safe(row['label'])}{between}{devices(row['devices'])}", row["marks"])
        for _, row in shown.iterrows()
    ]
    name_rows(axes, names, above=0.6, below=0.6)
    axes.margins(x=0.12)
    unit = ", %" if metric.percent else ""
    bars = _bars(shown[metric.ends[0]].isna())
    axes.set_xlabel(f"{metric.of_test}{unit}; bar: {bars}{_more(known, shown)}")
    return figure


def _of_runs(metric: Metric) -> tuple[str, str]:
    return f"{metric.figure}_low", f"{metric.figure}_high"
