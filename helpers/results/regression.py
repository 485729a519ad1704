"""Find the results that changed between two experiments by more than their spread, for a CI.

Runs are joined by framework and number of devices. If both sides have repeats, a result has changed
when the medians are further apart than the wider range of the repeats; otherwise they must also be
further apart than the result's own tolerance, which is printed. Changed versions and drivers are
listed as possible causes.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from helpers import terminal
from helpers.errors import UserError
from helpers.record.tasks import Metric
from helpers.results import comparison
from helpers.results.comparability import NOT_COMPARABLE
from helpers.results.comparison import Comparison, Entry, latest_of_each
from helpers.results.repeated_runs import summarise
from helpers.results.shared_settings import MUST_AGREE
from helpers.results.tables import ABSENT, short_number
from helpers.terminal import say

LEAST = 0.01
"""Repeats can agree by chance, so less than 1 % is never a change, whatever their range."""

TIMES = {
    "seconds": ("training time (s)", 0.10),
    "images_per_second": ("images/s, steady state", 0.05),
    "synthetic_images_per_second": ("images/s, synthetic", 0.05),
    "loader_images_per_second": ("images/s, loader", 0.15),
    "images_per_joule": ("images per joule", 0.10),
}
"""The result's name and relative tolerance, by column of ``repeated_runs.summarise``."""

OF_METRIC = 0.02
"""The tolerance of the task's metric, absolute."""

# What may change between two experiments because it is what one wants to try: all else must agree.
_MAY_CHANGE = ("machine", "kind of device", "seed", "images and labels")
_RUN = ["label", "devices"]


def compare(old: Comparison, new: Comparison) -> pd.DataFrame:
    """Join every result of every run of ``old`` with the same result of ``new``.

    Columns: label, devices, result, value_old, value_new, change (relative; absolute of a metric),
    allowed, verdict: same, better, worse, lost (``new`` does not have it), not comparable (its
    fairness check fails now), or the flag of a run whose times cannot be compared (resumed,
    disturbed).

    Raises:
        UserError: they have no run in common.
    """
    if not {entry.label for entry in old.finished} & {entry.label for entry in new.entries}:
        raise UserError(
            f"{_named(old)} and {_named(new)} have no run in common "
            "(framework, settings and number of devices); run the same plan again"
        )
    on = [*_RUN, "result", "tolerance"]
    found = _results(old).merge(_results(new), "left", on, suffixes=("_old", "_new"))
    is_metric = found["result"] == old.task.metric.of_split("test")
    scale = found["value_old"].abs().where(~is_metric, 1.0)
    repeats = found[["runs_old", "runs_new"]].min(axis=1) > 1
    found["change"] = (found["value_new"] - found["value_old"]) / scale
    ranges = found[["range_old", "range_new"]].max(axis=1) / scale
    found["allowed"] = np.maximum(found["tolerance"].where(~repeats, LEAST), ranges)
    better = found["change"] * np.where(found["result"] == TIMES["seconds"][0], -1, 1) > 0
    flags = found["flags_new"].fillna("").where(found["flags_old"] == "", found["flags_old"])
    found["verdict"] = np.select(
        [
            found["value_new"].isna(),
            found["comparable_old"] & (found["comparable_new"] == False),  # noqa: E712
            ~is_metric & (flags != ""),
            found["change"].abs() <= found["allowed"] * (1 + 1e-9),
            better,
        ],
        ["lost", NOT_COMPARABLE, flags, "same", "better"],
        "worse",
    )
    return found


def _results(side: Comparison) -> pd.DataFrame:
    """One row per run and result: value, range of the repeats, and what summarise has."""
    metric, numbers = side.task.metric, summarise(side)
    results = TIMES | {metric.column: (metric.of_split("test"), OF_METRIC)}
    flags = numbers["flags"].map(lambda of: ", ".join(m for m in of if m != NOT_COMPARABLE))
    parts = [
        numbers[[*_RUN, "runs", "comparable"]].assign(
            flags=flags,
            result=name,
            tolerance=tolerance,
            value=numbers[key],
            range=(numbers[f"{key}_high"] - numbers[f"{key}_low"]).where(numbers["runs"] > 1, 0),
        )
        for key, (name, tolerance) in results.items()
    ]
    return pd.concat(parts).sort_index(kind="stable").dropna(subset="value")


def check(old: str | Path, new: str | Path = "latest") -> int:
    """Print what changed from ``old`` to ``new``; return 1 if anything did, otherwise 0.

    Raises:
        UserError: an experiment does not exist, both are the same, or they cannot be compared.
    """
    sides = []
    for experiment in (old, new):
        side = comparison.load(experiment)
        comparison.must_exist(side.folders[0])
        for why in side.left_out:
            raise UserError(why)
        sides.append(side)
    if sides[0].folders[0].samefile(sides[1].folders[0]):
        raise UserError(f"{old} and {new} are the same experiment; give two different ones")
    if sides[0].task is not sides[1].task:
        tasks = " and ".join(f"{_named(side)} is of the task {side.task.name}" for side in sides)
        raise UserError(f"{tasks}: runs of different tasks cannot be compared")
    found, causes = compare(*sides), changed(*sides)
    header = ["Run", "Result", "Old", "New", "Change", "Allowed", "Verdict"]
    texts = [_texts(row, sides[1].task.metric) for row in found.to_dict("records")]
    moved = found[found["verdict"] != "same"]
    runs = len(moved[_RUN].drop_duplicates())
    said = f"No result changed beyond the spread: {len(found)} results."
    if runs:
        said = f"{len(moved)} of {len(found)} results changed, in {runs} run{'s' * (runs > 1)}."
    table = terminal.table(header, texts)
    names = f"{_named(sides[1])} against {_named(sides[0])}\n"
    say("\n".join([names, table, *causes, f"\n{said}"]))
    return int(runs > 0)


def _texts(row: dict[Any, Any], metric: Metric) -> list[str]:
    of_metric = row["result"] == metric.of_split("test")
    number = metric.text if of_metric else short_number
    change = metric.difference if of_metric else lambda share: f"{100 * share:+.1f} %"
    forms = {"value_old": number, "value_new": number, "change": change, "allowed": change}
    texts = [ABSENT if pd.isna(row[name]) else form(row[name]) for name, form in forms.items()]
    run = f"{row['label']}, {comparison.devices(row['devices'])}"
    return [run, row["result"], *texts[:3], texts[3].lstrip("+"), row["verdict"]]


def changed(old: Comparison, new: Comparison) -> list[str]:
    """What else changed, one line each: machine, devices, workers, driver, versions.

    The last runs of each label and number of devices are compared, with the same seed if possible,
    because seeds change splits and weights.

    Raises:
        UserError: a setting differs that must agree.
    """
    lines: dict[str, None] = {}
    for entry in latest_of_each(new.finished):
        seed = entry.content["recipe"]["seed"]
        alike = [e for e in old.finished if (e.label, e.devices) == (entry.label, entry.devices)]
        alike.sort(key=lambda e: e.content["recipe"]["seed"] == seed)  # stable: the last started
        then, now = (_facts(one) for one in (alike[-1] if alike else entry, entry))
        for what in dict.fromkeys((*then, *now)):
            was, found = (
                "none" if (value := of.get(what)) is None else str(value) for of in (then, now)
            )
            if was != found and what in MUST_AGREE and what not in _MAY_CHANGE:
                raise UserError(
                    f"{entry.run}: {what} was {was} and is {found}, so the two "
                    "experiments cannot be compared; run the new one with the old one's settings"
                )
            if was != found:
                lines[f"Changed: {what}, {was} -> {found}"] = None
    return list(lines)


def _facts(entry: Entry) -> dict[str, Any]:
    content = entry.content
    return {
        **{what: get(content) for what, get in MUST_AGREE.items()},
        "loader workers": content["data"].get("loader_workers"),
        "driver": content["hardware"]["driver"],
        "commit": content["run"]["commit"],
        **{f"{k} of {entry.label}": v for k, v in content["framework"]["versions"].items()},
    }


def _named(side: Comparison) -> str:
    return " and ".join(folder.resolve().name for folder in side.folders)
