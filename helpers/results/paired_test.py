"""Test whether two runs on the same test images differ significantly in mean AUC or top-1.

Intervals of single runs hold the luck of which patients are in the test part. That luck is the
same for all runs on the same part, so most of it falls out of a difference: each record holds the
means of the same 200 resamples, and subtracting them one by one gives the difference's own
standard error. Runs pair where their records' ``sample`` is equal.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from helpers.record.tasks import Metric, capital
from helpers.results import by_class, intervals, tables
from helpers.results.comparability import DIFFERENT, NOT_COMPARABLE
from helpers.results.comparison import Comparison, Entry
from helpers.results.tables import ABSENT, Cell, Table, of_run

ALIKE = "no significant difference"


@lru_cache(maxsize=1)
def differences(compared: Comparison) -> pd.DataFrame:
    """Each framework's metric minus that of one of them, :func:`reference`; a row a run's name.

    Columns: label, devices, reference (its run's name), pairs (of runs on the same test images),
    difference, low, high (its 95 % interval) and verdict: ``no significant
    difference``, ``higher``, ``lower``, ``the reference``, or why there is none. No row where
    nothing can be paired.

    Where runs were repeated, with other seeds or with the same, pairs are averaged, and the
    interval holds both that over patients and that over the pairs (Student's t). Intervals hold at
    95 % for all rows together: each at 100 % less its part of the 5 (Bonferroni), or else one of
    twenty rows would be significantly different by chance.
    """
    groups = _groups(compared)
    base = reference(compared)
    if base is None:
        return pd.DataFrame()
    pairs = {name: _pairs(entries, groups[base]) for name, entries in groups.items()}
    rivals = sum(bool(of) for name, of in pairs.items() if name != base)
    rows = []
    for name, entries in groups.items():
        row: dict[str, Any] = {
            "run": name,
            "label": entries[0].label,
            "devices": entries[0].devices,
            "reference": base,
        }
        if name == base:
            found = {"pairs": len(entries), "verdict": "the reference"}
        else:
            found = _difference(pairs[name], compared.task.metric, rivals)
            if not found["pairs"]:
                found["verdict"] = "cannot be paired: other test images"
        rows.append(row | {"difference": np.nan, "low": np.nan, "high": np.nan} | found)
    return pd.DataFrame(rows).set_index("run")


def table(compared: Comparison) -> Table:
    """:func:`differences` for a reader."""
    numbers, metric = differences(compared), compared.task.metric
    names = {
        entry.run: replace(of_run(entry, timed=False), marks=_marks(entry))
        for entry in compared.finished
    }
    rows = [
        (
            names[str(run)],
            {
                "difference": Cell(
                    row["difference"], metric.difference, row["low"], row["high"], missing=ABSENT
                ),
                "verdict": row["verdict"],
            },
        )
        for run, row in numbers.iterrows()
    ]
    title = f"{capital(metric.whole)}, on the same test images"
    return tables.table(title, "run", rows, note=_note(compared))


def _marks(entry: Entry) -> tuple[str, ...]:
    """What its fairness check says of the network that was tested."""
    return tuple(mark for mark in entry.marks if mark in (NOT_COMPARABLE, DIFFERENT))


def _note(compared: Comparison) -> str:
    """How the table is made, and how to read it."""
    base, metric = reference(compared), compared.task.metric
    if base is None:
        return ""
    found = differences(compared)
    place = "the lower" if (found["pairs"] > 0).sum() == 2 else "in the middle"
    if any(map(_marks, compared.finished)):
        place = "one that passed its fairness check"
    text = (
        f"The difference is each run's {metric.whole} minus that of {base}, which is {place}. Both "
        "use the same images and resamples, so an easy or hard test part cancels out. "
    )
    if found["pairs"].max() > 1:
        text += (
            "Repeated runs are paired by test images, and their differences are averaged. The "
            f"interval includes the variation between {by_class.drawn(compared)} and between runs. "
        )
    else:
        text += "The table compares these trained networks; another seed may reverse the order. "
    return f"{text}These are simultaneous 95 % intervals for all rows (Bonferroni)."


def reference(compared: Comparison) -> str | None:
    """The run with which the others are compared: the median of those with the most pairs.

    It is one that passed its fairness check, if there is such a run.
    A comparison with the best run would exaggerate its lead, because it is the best partly by
    chance. A fixed framework would have the same problem with its own chance. None if no two runs
    pair.
    """
    groups = _groups(compared)
    sound = {name: of for name, of in groups.items() if not any(map(_marks, of))}
    partners = {
        name: sum(bool(_pairs(entries, other)) for other in groups.values())
        for name, entries in (sound or groups).items()
    }
    most, metric = max(partners.values(), default=0), compared.task.metric
    if most < 2:  # with itself only
        return None
    means = {
        name: float(np.median([metric.of(entry.content["test"])[0] for entry in groups[name]]))
        for name, count in partners.items()
        if count == most
    }
    ranked = sorted(means, key=lambda name: means[name])
    return ranked[(len(ranked) - 1) // 2]


def _groups(compared: Comparison) -> dict[str, list[Entry]]:
    """Finished runs with a metric, repeats together, in the order they are shown."""
    groups = defaultdict(list)
    for entry in compared.finished:
        if compared.task.metric.of(entry.content["test"])[0] is not None:
            groups[entry.run].append(entry)
    return dict(groups)


def _pairs(ones: Sequence[Entry], others: Sequence[Entry]) -> list[tuple[Any, Any]]:
    """The sections ``test`` of runs on the same images; the first with the first, and so on."""
    left: dict[Any, list[Any]] = defaultdict(list)
    for test in (entry.content["test"] for entry in others):
        left[_sample(test)].append(test)
    return [
        (test, left[_sample(test)].pop(0))
        for test in (entry.content["test"] for entry in ones)
        if left.get(_sample(test))
    ]


def _sample(test: dict[str, Any]) -> tuple[str, int]:
    """What two runs must share for their resamples to be subtracted one by one."""
    return test["sample"], len(test["resamples"])


def _difference(
    pairs: Sequence[tuple[Any, Any]], metric: Metric, rivals: int = 1
) -> dict[str, Any]:
    """With an interval that holds at 95 % for so many ``rivals`` of one reference together."""
    if not pairs:
        return {"pairs": 0}
    from scipy.special import ndtri  # takes half a second, which no plan need wait for

    tail = 0.025 / rivals
    value = metric.tested[0]
    each = np.array([one[value] - other[value] for one, other in pairs])
    resampled = [
        np.array(one["resamples"], float) - np.array(other["resamples"], float)
        for one, other in pairs
    ]
    # By the normal distribution: the quantile of one of many rows is beyond 200 resamples.
    half = -ndtri(tail) * pd.Series(np.mean(resampled, axis=0)).std()
    if len(each) > 1:
        half = max(half, intervals.half_width(each, tail))
    low, high = each.mean() - half, each.mean() + half
    verdict = ALIKE if low <= 0 <= high else "higher" if low > 0 else "lower"
    return {
        "pairs": len(each),
        "difference": each.mean(),
        "low": low,
        "high": high,
        "verdict": verdict,
    }
