"""Find the figures that changed between two experiments by more than their spread, for a CI.

Runs are joined by framework and number of devices. Where both sides have repeats, a figure has
moved when the medians are further apart than the wider range of the repeats; else when they are
also further apart than the figure's own tolerance, which is printed. Versions and drivers that
changed are named, because they are possible causes.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from helpers import terminal
from helpers.errors import UserError
from helpers.results import comparison
from helpers.results.comparability import NOT_COMPARABLE
from helpers.results.comparison import Comparison, Entry, latest_of_each
from helpers.results.repeated_runs import summarise
from helpers.results.shared_settings import MUST_AGREE
from helpers.results.tables import ABSENT, Cell, short_number
from helpers.terminal import say

LEAST = 0.01
"""Repeats can agree by chance: less than 1 % is never a move, whatever their range."""

TIMES = {
    "seconds": ("training time (s)", 0.10),
    "images_per_second": ("images/s, steady state", 0.05),
    "synthetic_images_per_second": ("images/s, synthetic", 0.05),
    "loader_images_per_second": ("images/s, loader", 0.15),
    "images_per_joule": ("images per joule", 0.10),
}
"""By column of ``repeated_runs.summarise``: the figure's name and its relative tolerance."""

OF_METRIC = 0.02
"""The tolerance of the task's metric, absolute."""

# What may change between two experiments because it is what one wants to try: all else must agree.
_MAY_CHANGE = ("machine", "kind of device", "seed", "images and labels")
_RUN = ["label", "devices"]


def compare(old: Comparison, new: Comparison) -> pd.DataFrame:
    """Every figure of every run of ``old``, joined with the same one of ``new``.

    Columns: label, devices, figure, value_old, value_new, change (relative; absolute of a metric),
    allowed, verdict: same, better, worse, lost (``new`` has it no more), not comparable (its
    fairness check fails now), or the mark of a run whose times cannot be compared (resumed,
    disturbed).

    Raises:
        UserError: nothing is comparable: no run in common, or other settings.
    """
    if old.task is not new.task:
        raise UserError(
            f"{_named(old)} is of the task {old.task.name} and {_named(new)} of {new.task.name}: "
            "runs of different tasks cannot be compared"
        )
    if not old.finished:
        raise UserError(f"{_named(old)}: no finished run there; nothing to compare with")
    if not {entry.label for entry in old.finished} & {entry.label for entry in new.entries}:
        raise UserError(
            f"{_named(old)} and {_named(new)} have no run in common "
            "(framework, settings and number of devices); run the same plan again"
        )
    _same_settings(old, new)
    on = [*_RUN, "figure", "tolerance"]
    found = _figures(old).merge(_figures(new), "left", on, suffixes=("_old", "_new"))
    is_metric = found["figure"] == old.task.metric.of_test
    scale = found["value_old"].abs().where(~is_metric, 1.0)
    repeats = found[["runs_old", "runs_new"]].min(axis=1) > 1
    found["change"] = (found["value_new"] - found["value_old"]) / scale
    ranges = found[["range_old", "range_new"]].max(axis=1) / scale
    found["allowed"] = np.maximum(found["tolerance"].where(~repeats, LEAST), ranges)
    better = found["change"] * np.where(found["figure"] == TIMES["seconds"][0], -1, 1) > 0
    both = found["marks_old"] + found["marks_new"].map(
        lambda of: of if isinstance(of, tuple) else ()
    )
    marks = both.map(lambda of: ", ".join(dict.fromkeys(m for m in of if m != NOT_COMPARABLE)))
    found["verdict"] = np.select(
        [
            found["value_new"].isna(),
            found["comparable_old"] & (found["comparable_new"] == False),  # noqa: E712
            ~is_metric & (marks != ""),
            found["change"].abs() <= found["allowed"] * (1 + 1e-9),
            better,
        ],
        ["lost", NOT_COMPARABLE, marks, "same", "better"],
        "worse",
    )
    return found


def _figures(side: Comparison) -> pd.DataFrame:
    """One row a run and figure that it has: value, range of the repeats, and what summarise has."""
    metric, numbers = side.task.metric, summarise(side)
    figures = TIMES | {metric.figure: (metric.of_test, OF_METRIC)}
    parts = [
        numbers[[*_RUN, "runs", "marks", "comparable"]].assign(
            figure=name,
            tolerance=tolerance,
            value=numbers[key],
            range=(numbers[f"{key}_high"] - numbers[f"{key}_low"]).where(numbers["runs"] > 1, 0),
        )
        for key, (name, tolerance) in figures.items()
    ]
    return pd.concat(parts).sort_index(kind="stable").dropna(subset="value")


def check(old: str | Path, new: str | Path = "latest") -> int:
    """Print what moved from ``old`` to ``new``; 1 if anything did, 0 if not.

    Raises:
        UserError: an experiment is not there, both are the same, or they cannot be compared.
    """
    sides = []
    for experiment in (old, new):
        side = comparison.load(experiment)
        comparison.must_exist(side.folders[0])
        for why in (*side.unreadable, *side.set_aside):
            raise UserError(why)
        sides.append(side)
    if sides[0].folders[0].samefile(sides[1].folders[0]):
        raise UserError(f"{old} and {new} are the same experiment; give two different ones")
    found = compare(*sides)
    metric = sides[1].task.metric
    header = ["Run", "Figure", "Old", "New", "Change", "Allowed", "Verdict"]
    texts = []
    for row in found.to_dict("records"):
        of_metric = row["figure"] == metric.of_test
        number = metric.text if of_metric else short_number
        change = metric.difference if of_metric else lambda share: f"{100 * share:+.1f} %"
        cells = [
            Cell(row["value_old"], number, missing=ABSENT),
            Cell(row["value_new"], number, missing=ABSENT),
            Cell(row["change"], change, missing=ABSENT),
            Cell(row["allowed"], change, missing=ABSENT),
        ]
        run = f"{row['label']}, {comparison.devices(row['devices'])}"
        *shown, allowed = (cell.text for cell in cells)
        texts.append([run, row["figure"], *shown, allowed.lstrip("+"), row["verdict"]])
    say(f"{_named(sides[1])} against {_named(sides[0])}\n")
    say(terminal.table(header, texts))
    for line in changed(*sides):
        say(line)
    moved = found[found["verdict"] != "same"]
    if moved.empty:
        say(f"\nNo result changed beyond the spread: {len(found)} figures.")
        return 0
    runs = len(moved[_RUN].drop_duplicates())
    say(f"\n{len(moved)} of {len(found)} results changed, in {runs} run{'s' * (runs > 1)}.")
    return 1


def changed(old: Comparison, new: Comparison) -> list[str]:
    """What else changed, a line each: machine, devices, workers, driver, versions."""
    lines: dict[str, None] = {}
    for was, entry in _pairs(old, new):
        if was is None:
            lines[f"New: {entry.run}"] = None
            continue
        then, now = _causes(was), _causes(entry)
        for what in dict.fromkeys((*then, *now)):
            if then.get(what) != now.get(what):
                said = f"{_said(then.get(what))} -> {_said(now.get(what))}"
                lines[f"Changed: {what}, {said}"] = None
    return list(lines)


def _causes(entry: Entry) -> dict[str, Any]:
    content = entry.content
    return {
        **{what: MUST_AGREE[what](content) for what in _MAY_CHANGE},
        "loader workers": content["data"].get("loader_workers"),
        "driver": content["hardware"]["driver"],
        "commit": content["run"]["commit"],
        **{f"{k} of {entry.label}": v for k, v in content["framework"]["versions"].items()},
    }


def _pairs(old: Comparison, new: Comparison) -> Iterator[tuple[Entry | None, Entry]]:
    """The last run of each label and number of devices of ``new``, with its like of ``old``.

    That is the one of the same seed where there is one: seeds have other splits and weights.
    """
    for entry in latest_of_each(new.finished):
        alike = [e for e in old.finished if (e.label, e.devices) == (entry.label, entry.devices)]
        seed = entry.content["recipe"]["seed"]
        alike.sort(key=lambda e: e.content["recipe"]["seed"] == seed)  # stable: the last started
        yield (alike[-1] if alike else None), entry


def _same_settings(old: Comparison, new: Comparison) -> None:
    for was, entry in _pairs(old, new):
        if was is None:
            continue
        for what, get in MUST_AGREE.items():
            then, now = get(was.content), get(entry.content)
            if what not in _MAY_CHANGE and then != now:
                raise UserError(
                    f"{entry.run}: {what} was {_said(then)} and is {_said(now)}, so the two "
                    "experiments cannot be compared; run the new one with the old one's settings"
                )


def _named(side: Comparison) -> str:
    return " and ".join(folder.resolve().name for folder in side.folders)


def _said(value: Any) -> str:
    return "none" if value is None else str(value)
