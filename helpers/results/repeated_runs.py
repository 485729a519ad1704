"""Summarise repeats of a run, by their mean or median, minimum and maximum.

Runs are repeats of each other where label (framework, notebook, its code, and the settings that
differ within the comparison) and number of devices are the same.
"""

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
import pandas as pd

from helpers.frameworks import order
from helpers.results.best import MORE_IS_BETTER, orders
from helpers.results.comparability import together as marks_together
from helpers.results.comparison import KEPT, Comparison, Entry, latest_of_each, with_ends
from helpers.results.runs import ROUNDS, frame, undisturbed

FIGURES = (*MORE_IS_BETTER, "first_step_seconds", *ROUNDS, "joules", "images_per_joule")
"""The figures in addition to the task's metrics."""

_KEYS = ["label", "devices"]


@lru_cache(maxsize=KEPT)
def summarise(compared: Comparison) -> pd.DataFrame:
    """One row a label and number of devices, in the order of the frameworks.

    Runs that only noise spoiled do not count beside sound repeats (``runs.undisturbed``).

    Columns: label, series, devices, nodes, kind, ranks, runs (how many repeats), comparable (every
    one passed its fairness check), marks (those that any has), the ends of the metrics' intervals
    (auc_low and auc_high of the mean AUC's over patients; NaN where there were repeats), and for
    each of ``FIGURES`` and of the task's metrics its median under its own name, its minimum and
    maximum under ``<figure>_low`` and ``<figure>_high``. ``best.MORE_IS_BETTER`` have their
    geometric mean in place of the median, because it decides the order; it is NaN if a run has no
    value. The ends of an only run's rates are over its epochs or rounds.
    """
    numbers, metrics = frame(compared), compared.task.metrics
    figures = [*FIGURES[:-2], *(metric.figure for metric in metrics), *FIGURES[-2:]]
    ends = [end for metric in metrics for end in metric.ends]
    fixed = {
        "series": "first",
        "nodes": "first",
        "kind": "first",
        "ranks": "all",
        "comparable": "all",
        "marks": marks_together,
        **dict.fromkeys(ends, _only),
    }
    if numbers.empty:
        names = [*_KEYS, "runs", *fixed, *(f + e for f in figures for e in ("", "_low", "_high"))]
        return pd.DataFrame(columns=names)
    numbers = undisturbed(numbers).astype(dict.fromkeys((*figures, *ends), float))
    groups = numbers.groupby(_KEYS, sort=False)
    found = pd.concat(
        [groups.size().rename("runs"), groups.agg(fixed), with_ends(groups[figures])], axis=1
    )
    found[list(MORE_IS_BETTER)] = groups[list(MORE_IS_BETTER)].agg(_geometric_mean)
    alone = found["runs"] == 1
    for rate in ("images_per_second", *ROUNDS):
        for end in ("_low", "_high"):
            found.loc[alone, rate + end] = groups[rate + end].first()[alone]
    return found.reset_index().sort_values(
        _KEYS,
        key=lambda column: column.map(order) if column.name == "label" else column,
        ignore_index=True,
    )


def ordered(compared: Comparison) -> pd.DataFrame:
    """The rows of :func:`summarise`, by label in the order of the training times.

    Labels that are too noisy or have marks follow, then those that are not ranked.
    """
    found = summarise(compared)
    time = orders(frame(compared)).get("seconds")
    labels = [] if time is None else [*time.labels, *time.noisy]
    marked = found[found["ranks"].astype(bool) & ~found["label"].isin(labels)]["label"]
    places = {label: place for place, label in enumerate([*labels, *dict.fromkeys(marked)])}
    return found.sort_values("label", key=lambda names: names.map(places), kind="stable")


def field(compared: Comparison) -> pd.DataFrame:
    """The rows of :func:`ordered` on the most devices that rank; empty where nothing ranks."""
    found = ordered(compared)
    able = found[found["ranks"].astype(bool)]
    return able[able["devices"] == able["devices"].max()]


def _geometric_mean(values: pd.Series) -> float:
    """NaN if one is missing."""
    return float(np.exp(np.log(values.to_numpy()).mean()))


def brackets(compared: Comparison) -> str:
    """What the brackets of the tables hold."""
    numbers = summarise(compared)
    low, high = numbers["runs"].min(), numbers["runs"].max()
    if not repeated(compared):
        return (
            "Each row is one run. Brackets behind images/s hold the minimum and maximum of its "
            "epochs without the first."
        )
    count = str(low) if low == high else f"{low} to {high}"
    said = (
        f"Rows have {count} runs: the geometric mean of times and images/s, the median of other "
        "figures. Brackets hold the minimum and maximum of the runs"
    )
    alone = "; behind images/s of one run, of its epochs without the first" * bool(low == 1)
    return f"{said}{alone}."


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
