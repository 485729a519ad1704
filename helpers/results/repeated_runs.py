"""Summarise repeats of a run, by their mean or median, minimum and maximum.

Runs are repeats of each other if they have the same number of devices and the same label
(framework, notebook, its code, and the settings that differ within the comparison).
"""

from functools import lru_cache

import numpy as np
import pandas as pd

from helpers.frameworks import order
from helpers.results.best import MORE_IS_BETTER, orders
from helpers.results.comparability import together as flags_together
from helpers.results.comparison import KEPT, Comparison, with_ends
from helpers.results.runs import PARTS, ROUNDS, frame, undisturbed

RESULTS = (
    *MORE_IS_BETTER,
    *("images_to_target", *PARTS, "first_step_seconds", *ROUNDS),
    *("peak_bytes", "joules", "images_per_joule"),
)
"""The values in addition to the task's metrics."""

_MEANS = [*MORE_IS_BETTER, "images_to_target"]
_KEYS = ["label", "devices"]


@lru_cache(maxsize=KEPT)
def summarise(compared: Comparison) -> pd.DataFrame:
    """One row per label and number of devices, in the order of the frameworks.

    Runs that only noise spoiled do not count if there are sound repeats (``runs.undisturbed``).

    Columns: label, series, devices, nodes, kind, ranks, runs (how many repeats), comparable (every
    one passed its fairness check), flags (those that any run has), the ends of the metrics'
    intervals (auc_low and auc_high of the mean AUC's over patients; NaN if there were repeats),
    and for each of ``RESULTS`` and of the task's metrics its median under its own name, its minimum
    and maximum under ``<column>_low`` and ``<column>_high``. ``best.MORE_IS_BETTER`` and
    images_to_target have their geometric mean in place of the median, because it decides the order
    and makes speed-ups multiply; it is NaN if a run has no value. If there is only one run, the
    ends of its rates are over its epochs or rounds.
    """
    numbers, metrics = frame(compared), compared.task.metrics
    results = [*RESULTS, *(metric.column for metric in metrics)]
    ends = [end for metric in metrics for end in metric.ends]
    fixed = {
        "series": "first",
        "nodes": "first",
        "kind": "first",
        "ranks": "all",
        "comparable": "all",
        "flags": flags_together,
        **dict.fromkeys(ends, _only),
    }
    if numbers.empty:
        names = [*_KEYS, "runs", *fixed, *(f + e for f in results for e in ("", "_low", "_high"))]
        return pd.DataFrame(columns=names)
    numbers = undisturbed(numbers).astype(dict.fromkeys((*results, *ends), float))
    groups = numbers.groupby(_KEYS, sort=False)
    found = pd.concat(
        [groups.size().rename("runs"), groups.agg(fixed), with_ends(groups[results])], axis=1
    )
    found[_MEANS] = groups[_MEANS].agg(lambda each: np.exp(np.log(each.to_numpy()).mean()))
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

    Then come labels that are too noisy or have flags, then those that are not ranked.
    """
    found = summarise(compared)
    time = orders(frame(compared)).get("seconds")
    labels = [] if time is None else [*time.labels, *time.noisy]
    flagged = found[found["ranks"].astype(bool) & ~found["label"].isin(labels)]["label"]
    places = {label: place for place, label in enumerate([*labels, *dict.fromkeys(flagged)])}
    return found.sort_values("label", key=lambda names: names.map(places), kind="stable")


def widest_first(compared: Comparison) -> tuple[pd.DataFrame, int]:
    """The rows of :func:`ordered`, each label's most devices first, and the number of these."""
    found = ordered(compared)
    wide = found["devices"] == found.groupby("label")["devices"].transform("max")
    return pd.concat([found[wide], found[~wide]]), int(wide.sum())


def field(compared: Comparison) -> pd.DataFrame:
    """The ranked rows of :func:`ordered` on the most devices; empty if nothing is ranked."""
    found = ordered(compared)
    able = found[found["ranks"].astype(bool)]
    return able[able["devices"] == able["devices"].max()]


def brackets(compared: Comparison) -> str:
    """A sentence on what the brackets of the tables hold."""
    if not (summarise(compared)["runs"] > 1).any():
        return "Brackets hold the minimum and maximum of the epochs without the first."
    return (
        "Times and images/s are geometric means of the runs, other values are medians; brackets "
        "hold the minimum and maximum."
    )


def _only(values: pd.Series) -> float:
    return float(values.iloc[0]) if len(values) == 1 else float("nan")
