"""Test whether two runs on the same test images differ significantly in mean AUC or top-1.

The interval of a single run includes the chance of which patients are in the test split. That
chance is the same for all runs on the same split, so a difference includes little of it. Each
record holds the means of the same 200 resamples; subtracting them one by one gives the standard
error of the difference. Runs are paired if their records have the same ``sample``.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from helpers.record.tasks import Metric, capital
from helpers.results import intervals
from helpers.results.comparability import DIFFERENT, NOT_COMPARABLE
from helpers.results.comparison import Comparison, Entry

ALIKE = "no significant difference"
Pairs = list[tuple[dict[str, Any], dict[str, Any]]]


@lru_cache(maxsize=1)
def differences(compared: Comparison) -> pd.DataFrame:
    """Each run's metric minus that of the :func:`reference`; one row per run's name.

    Columns: label, devices, reference (its run's name), pairs (of runs on the same test images),
    difference, low, high (its 95 % interval) and verdict: ``no significant
    difference``, ``higher``, ``lower``, ``the reference``, or why there is none. No rows if nothing
    can be paired. If runs were repeated, with the same seed or others, pairs are averaged, and the
    interval covers the variation over patients and over the pairs (Student's t). Intervals hold at
    95 % for all rows together (Bonferroni). Otherwise, one of twenty rows would be significantly
    different by chance.
    """
    groups, base = _groups(compared), reference(compared)
    if base is None:
        return pd.DataFrame()
    pairs = {name: _pairs(entries, groups[base]) for name, entries in groups.items()}
    rivals = sum(bool(of) for name, of in pairs.items() if name != base)
    rows = []
    for name, entries in groups.items():
        found: dict[str, Any] = dict.fromkeys(("difference", "low", "high"), np.nan)
        if name == base:
            found |= {"pairs": len(entries), "verdict": "the reference"}
        elif pairs[name]:
            found |= _difference(pairs[name], compared.task.metric, rivals)
        else:
            found |= {"pairs": 0, "verdict": "cannot be paired: other test images"}
        first = entries[0]
        about = {"label": first.label, "devices": first.devices, "reference": base}
        rows.append({"run": name} | about | found)
    return pd.DataFrame(rows).set_index("run")


def sentence(compared: Comparison) -> str:
    """Who is significantly higher or lower than the reference; empty if nothing is paired."""
    found = differences(compared)
    if found.empty:
        return ""
    who = {
        verdict: f"{verdict} than {found['reference'].iloc[0]}: {', '.join(of.index)}"
        for verdict, of in found.groupby("verdict")
        if verdict in ("higher", "lower")
    }
    said = "; ".join(who.values()) or f"{ALIKE} from {found['reference'].iloc[0]}"
    return f"{capital(compared.task.metric.whole)}, on the same test images: {said} (paired.csv)."


def reference(compared: Comparison) -> str | None:
    """The run with which the others are compared: the median of those with the most pairs.

    It passed its fairness check, if any run did.
    A comparison with the best run would exaggerate its lead, because it is the best partly by
    chance. A fixed framework would have the same problem with its own chance. None if no two runs
    pair.
    """
    groups, metric = _groups(compared), compared.task.metric
    sound = {
        name: of
        for name, of in groups.items()
        if not any({NOT_COMPARABLE, DIFFERENT} & {*entry.flags} for entry in of)
    }
    partners = {
        name: sum(bool(_pairs(entries, other)) for other in groups.values())
        for name, entries in (sound or groups).items()
    }
    most = max(partners.values(), default=0)
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
    """Finished runs with a metric, repeats together, in the order in which they are shown."""
    groups = defaultdict(list)
    for entry in compared.finished:
        if compared.task.metric.of(entry.content["test"])[0] is not None:
            groups[entry.run].append(entry)
    return dict(groups)


def _pairs(ones: Sequence[Entry], others: Sequence[Entry]) -> Pairs:
    """Pairs of ``test`` sections of runs on the same images: the first with the first, and so on.

    Their resamples can be subtracted one by one, because sample and number are equal.
    """
    left: dict[Any, list[Any]] = defaultdict(list)
    for entry in others:
        test = entry.content["test"]
        left[test["sample"], len(test["resamples"])].append(test)
    found = []
    for entry in ones:
        test = entry.content["test"]
        if of := left[test["sample"], len(test["resamples"])]:
            found.append((test, of.pop(0)))
    return found


def _difference(pairs: Pairs, metric: Metric, rivals: int = 1) -> dict[str, Any]:
    """The difference, with an interval that holds at 95 % for all ``rivals`` of a reference."""
    from scipy.special import ndtri  # takes half a second, which no plan need wait for

    tail, value = 0.025 / rivals, metric.tested[0]
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
    ends = {"difference": each.mean(), "low": low, "high": high}
    return {"pairs": len(each), **ends, "verdict": verdict}
