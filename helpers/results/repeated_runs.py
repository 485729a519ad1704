"""Summarise repeats of a run by their median, minimum and maximum.

Runs are repeats of each other where label (framework, notebook, its code, and the settings that
differ within the comparison) and number of devices are the same.
"""

from collections.abc import Callable
from functools import lru_cache

import pandas as pd

from helpers.frameworks import order
from helpers.record.tasks import NONE, Metric
from helpers.results.comparability import together as marks_together
from helpers.results.comparison import KEPT, Comparison, results
from helpers.results.rates import ENDS, RATES, rounds, together

FIGURES = (
    "seconds",
    "first_step_seconds",
    *RATES,
    "joules",
    "images_per_joule",
)
"""The figures in addition to the task's metrics."""

ONE_RUN = 0.10
"""Single runs without rounds that differ by no more than this share are not significantly apart."""

_KEYS = ["label", "devices"]
_ENDS = {"": "median", "_low": "min", "_high": "max"}


@lru_cache(maxsize=KEPT)
def summarise(compared: Comparison) -> pd.DataFrame:
    """One row a label and number of devices, in the order of the frameworks.

    Columns: label, series, devices, nodes, kind, runs (how many repeats), comparable (every one
    passed its fairness check), marks (those that any has), the ends of the metrics' intervals
    (auc_low and auc_high of the mean AUC's over patients; NaN where there were repeats), and for
    each of ``FIGURES`` and of the task's metrics its median under its own name, its minimum and
    maximum under ``<figure>_low`` and ``<figure>_high``; of ``RATES`` the ends of
    ``rates.together``.
    """
    numbers, metrics = results(compared), compared.task.metrics
    figures = [*FIGURES[:-2], *(metric.figure for metric in metrics), *FIGURES[-2:]]
    ends = [end for metric in metrics for end in metric.ends]
    fixed = {
        "series": "first",
        "nodes": "first",
        "kind": "first",
        "comparable": "all",
        "marks": marks_together,
        **dict.fromkeys(ends, _only),
    }
    if numbers.empty:
        names = [*_KEYS, "runs", *fixed, *(f + end for f in figures for end in _ENDS)]
        return pd.DataFrame(columns=names)
    floats = dict.fromkeys((*figures, *ends), float)
    groups = numbers.astype(floats).groupby(_KEYS, sort=False)
    parts = [groups.size().rename("runs"), groups.agg(fixed)]
    for end, method in _ENDS.items():
        parts.append(groups[figures].agg(method).add_suffix(end))
    found = pd.concat(parts, axis=1)
    for rate, section in RATES.items():
        of_runs = pd.Series([rounds(entry.content, section) for entry in compared.finished])
        of_each = of_runs.groupby([numbers[key] for key in _KEYS], sort=False).agg(together)
        found[[f"{rate}{end}" for end in ENDS]] = of_each.to_list()
    return found.reset_index().sort_values(
        _KEYS,
        key=lambda column: column.map(order) if column.name == "label" else column,
        ignore_index=True,
    )


def with_range(
    row: pd.Series, figure: str, text: Callable[[float], str], divisor: float = 1.0
) -> str:
    """``27.4``, or ``27.4 (26.9 to 28.0)`` with a range; ``n/a`` without a value.

    ``row`` is one of :func:`summarise`.
    """
    value = row[figure]
    if pd.isna(value):
        return NONE
    shown = text(value / divisor)
    low, high = row[f"{figure}_low"] / divisor, row[f"{figure}_high"] / divisor
    if row["runs"] == 1 and not low < high:
        return shown
    return f"{shown} ({_bare(text(low))} to {_bare(text(high))})"


def metric_with_interval(row: pd.Series, metric: Metric) -> str:
    """The test's metric of a row of :func:`summarise`, with what is known of its uncertainty.

    Of one run, ``0.757 (0.731 to 0.781)``: the 95 % interval over patients. Of several, their
    median and ``(0.728 to 0.779 over 3 runs)``.
    """
    if row["runs"] == 1:
        value, low, high = row[[metric.figure, *metric.ends]]
        return with_interval(value, low, high, metric.text)
    over = f" over {row['runs']} runs)"
    return with_range(row, metric.figure, metric.text).replace(")", over)


def with_interval(
    value: float | None,
    low: float | None,
    high: float | None,
    text: Callable[[float], str] = "{:.3f}".format,
) -> str:
    """``0.757 (0.731 to 0.781)``, ``75.7 % (73.1 to 78.1)``.

    Without its interval where it has none; ``n/a`` without value.
    """
    if value is None or pd.isna(value):
        return NONE
    if low is None or high is None or pd.isna(low) or pd.isna(high):
        return text(value)
    return f"{text(value)} ({_bare(text(low))} to {_bare(text(high))})"


def _bare(text: str) -> str:
    """Without a unit that stands before the bracket already."""
    return text.removesuffix(" %").removesuffix(" points")


def _only(values: pd.Series) -> float:
    return float(values.iloc[0]) if len(values) == 1 else float("nan")
