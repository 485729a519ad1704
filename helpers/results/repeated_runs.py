"""Summarise repeats of a run by their median, minimum and maximum.

Runs are repeats of each other where label (framework, notebook, its code, and the settings that
differ within the comparison) and number of devices are the same.
"""

from collections.abc import Iterable
from functools import lru_cache

import pandas as pd
from pandas.core.groupby import DataFrameGroupBy

from helpers.frameworks import order
from helpers.results.comparability import together as marks_together
from helpers.results.comparison import KEPT, Comparison, Entry, latest_of_each, results
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
"""Training times that differ by no more than this share are not significantly apart."""

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
    found = pd.concat(
        [groups.size().rename("runs"), groups.agg(fixed), with_ends(groups[figures])], axis=1
    )
    for rate, section in RATES.items():
        of_runs = pd.Series([rounds(entry.content, section) for entry in compared.finished])
        of_each = of_runs.groupby([numbers[key] for key in _KEYS], sort=False).agg(together)
        found[[f"{rate}{end}" for end in ENDS]] = of_each.to_list()
    return found.reset_index().sort_values(
        _KEYS,
        key=lambda column: column.map(order) if column.name == "label" else column,
        ignore_index=True,
    )


def with_ends(groups: DataFrameGroupBy) -> pd.DataFrame:
    """Each column's median, with its minimum and maximum under ``_low`` and ``_high``."""
    each = [groups.agg(method).add_suffix(end) for end, method in _ENDS.items()]
    return pd.concat(each, axis=1)


def brackets(compared: Comparison) -> str:
    """What the brackets of the tables hold."""
    numbers = summarise(compared)
    low, high = numbers["runs"].min(), numbers["runs"].max()
    if not repeated(compared):
        return (
            "Brackets hold the minimum and maximum of the rounds; all other figures come from one "
            "run."
        )
    count = str(low) if low == high else f"{low} to {high}"
    return (
        f"Figures are the median of {count} runs. For images/s, brackets hold the 95 % interval of "
        "the median of all rounds, widened to include the median of each run. For other figures, "
        "they hold the minimum and maximum over the runs."
    )


def shown(compared: Comparison) -> str:
    """Which run a single run's figures come from; empty if none was repeated."""
    if not repeated(compared):
        return ""
    last = seeds(latest_of_each(compared.finished))
    seed = f" (seed {last.pop()})" if len(last) == 1 and len(seeds(compared.finished)) > 1 else ""
    return (
        f"Charts and tables show the last of repeated runs{seed}, unless they say that they cover "
        "all."
    )


def repeated(compared: Comparison) -> bool:
    """Whether any run was repeated."""
    numbers = summarise(compared)
    return not numbers.empty and bool(numbers["runs"].max() > 1)


def seeds(entries: Iterable[Entry]) -> set[int]:
    """The seeds of these runs."""
    return {entry.content["recipe"]["seed"] for entry in entries}


def _only(values: pd.Series) -> float:
    return float(values.iloc[0]) if len(values) == 1 else float("nan")
