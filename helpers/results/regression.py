"""Find the figures that changed between two experiments by more than their spread, for a CI.

Runs are matched by framework and number of devices. Where a side has repeats, a figure has moved
when the medians are further apart than the wider range of the repeats; where neither has, when
they are further apart than the figure's own tolerance, which is printed. Versions and drivers that
changed are named, because they are possible causes.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from helpers import terminal
from helpers.errors import UserError
from helpers.record.tasks import Metric
from helpers.results import comparison
from helpers.results.comparability import NOT_COMPARABLE, together
from helpers.results.comparison import Comparison, latest_of_each
from helpers.results.repeated_runs import summarise
from helpers.results.shared_settings import MUST_AGREE
from helpers.results.tables import ABSENT, Cell, short_number
from helpers.terminal import say

LEAST = 0.01
"""Repeats can agree by chance: less than 1 % is never a move, whatever their range."""


@dataclass(frozen=True)
class Figure:
    """One that is compared.

    key: its name in ``repeated_runs.summarise``. tolerance: relative, or absolute of a ``metric``.
    """

    key: str
    name: str
    tolerance: float
    better: int
    metric: Metric | None = None


FIGURES = (
    Figure("seconds", "training time (s)", 0.10, -1),
    Figure("images_per_second", "images/s, steady state", 0.05, +1),
    Figure("synthetic_images_per_second", "images/s, synthetic", 0.05, +1),
    Figure("loader_images_per_second", "images/s, loader", 0.15, +1),
    Figure("images_per_joule", "images per joule", 0.10, +1),
)
"""The compared figures, in addition to the task's metric; tolerances apply without repeats."""

OF_METRIC = 0.02
"""The tolerance of the task's metric."""

# What may change between two experiments because it is what one wants to try: all else must agree.
_MAY_CHANGE = ("machine", "kind of device", "seed", "images and labels")
_COLUMNS = ["run", "figure", "old", "new", "change", "allowed", "limit from", "verdict"]


def compare(old: Comparison, new: Comparison) -> pd.DataFrame:
    """Every figure of every run that both experiments have, or that only ``old`` has.

    Columns: run, figure, old, new, change (relative; absolute of a metric), allowed, limit from
    (repeats or tolerance), verdict: same, better, worse, lost (``new`` has it no more), fair no
    more (its fairness check fails now), or the mark of a run whose times cannot be compared
    (resumed, disturbed), of which nothing but the metric is.

    Raises:
        UserError: nothing is comparable: no run in common, or other settings.
    """
    if old.task is not new.task:
        raise UserError(
            f"{_named(old)} is of the task {old.task.name} and {_named(new)} of {new.task.name}: "
            "runs of different tasks cannot be compared"
        )
    before, after = (summarise(side).set_index(["label", "devices"]) for side in (old, new))
    if before.empty:
        raise UserError(f"{_named(old)}: no finished run there; nothing to compare with")
    both = before.index.intersection(after.index)
    tried = {entry.label for entry in new.entries if not entry.finished}
    if both.empty and not tried & set(before.index.get_level_values("label")):
        raise UserError(
            f"{_named(old)} and {_named(new)} have no run in common "
            "(framework, settings and number of devices); run the same plan again"
        )
    _same_settings(old, new)
    metric = new.task.metric
    figures = [*FIGURES, Figure(metric.figure, metric.of_test, OF_METRIC, +1, metric)]
    rows: list[dict[str, Any]] = []
    for key, was in before.iterrows():
        label, count = key  # type: ignore[misc]
        run = f"{label}, {comparison.devices(count)}"
        now = after.loc[key] if key in both else None
        unclean, verdicts = "", ["lost"]
        if now is not None:
            marks = together([was["marks"], now["marks"]])
            unclean = ", ".join(mark for mark in marks if mark != NOT_COMPARABLE)
            unfair = was["comparable"] and not now["comparable"]
            verdicts = ["fair no more"] * bool(unfair) + [unclean] * bool(unclean)
        rows += [{"run": run, "figure": "-", "verdict": verdict} for verdict in verdicts]
        for figure in figures if now is not None else ():
            if (figure.metric or not unclean) and (row := _row(figure, was, now)) is not None:
                rows.append({"run": run, **row})
    return pd.DataFrame(rows, columns=_COLUMNS)


def check(old: str | Path, new: str | Path = "latest") -> int:
    """Print what moved from ``old`` to ``new``; 1 if anything did, 0 if not.

    Raises:
        UserError: an experiment is not there, or the two cannot be compared.
    """
    sides = []
    for experiment in (old, new):
        side = comparison.load(experiment)
        comparison.must_exist(side.folders[0])
        for why in (*side.unreadable, *side.set_aside):
            raise UserError(why)
        sides.append(side)
    found = compare(*sides)
    moved = found[found["verdict"] != "same"]
    metric = sides[1].task.metric
    texts = [_texts(row, metric) for _, row in found.iterrows()]
    header = ["Run", "Figure", "Old", "New", "Change", "Allowed", "Limit from", "Verdict"]
    say(f"{_named(sides[1])} against {_named(sides[0])}\n")
    say(terminal.table(header, texts))
    for line in changed(*sides):
        say(line)
    runs = moved["run"].nunique()
    if moved.empty:
        say(f"\nNo result changed beyond the spread: {len(found)} figures.")
    else:
        say(f"\n{len(moved)} of {len(found)} results changed, in {runs} run{'s' * (runs > 1)}.")
    return 0 if moved.empty else 1


def changed(old: Comparison, new: Comparison) -> list[str]:
    """What else changed, a line each: machine, devices, workers, driver, versions."""
    lines: dict[str, None] = {}
    before = {(e.label, e.devices): e.content for e in latest_of_each(old.finished)}
    for entry in latest_of_each(new.finished):
        was, now = before.get((entry.label, entry.devices)), entry.content
        if was is None:
            lines[f"New: {entry.run}"] = None
            continue
        pairs = [(what, MUST_AGREE[what](was), MUST_AGREE[what](now)) for what in _MAY_CHANGE]
        for what, section, key in (
            ("loader workers", "data", "loader_workers"),
            ("driver", "hardware", "driver"),
            ("commit", "run", "commit"),
        ):
            pairs.append((what, was[section].get(key), now[section].get(key)))
        versions = was["framework"]["versions"], now["framework"]["versions"]
        pairs += [
            (f"{name} of {entry.label}", versions[0].get(name), versions[1].get(name))
            for name in sorted(versions[0].keys() | versions[1].keys())
        ]
        for what, then, today in pairs:
            if then != today:
                lines[f"Changed: {what}, {_said(then)} -> {_said(today)}"] = None
    return list(lines)


def _row(figure: Figure, was: pd.Series, now: pd.Series) -> dict[str, Any] | None:
    old, new = was[figure.key], now[figure.key]
    if pd.isna(old) and pd.isna(new):
        return None
    if pd.isna(new):
        return {"figure": figure.name, "old": old, "verdict": "lost"}
    if pd.isna(old):
        return {"figure": figure.name, "new": new, "verdict": "same"}
    scale = 1.0 if figure.metric else abs(old) or 1.0
    change = (new - old) / scale
    repeated = [side for side in (was, now) if side["runs"] > 1]
    ranges = [side[f"{figure.key}_high"] - side[f"{figure.key}_low"] for side in repeated]
    least = LEAST if len(repeated) == 2 else figure.tolerance
    allowed = max([least, *(wide / scale for wide in ranges)])
    moved = abs(change) > allowed * (1 + 1e-9)
    verdict = "same" if not moved else "better" if change * figure.better > 0 else "worse"
    source = "repeats" if allowed > least or len(repeated) == 2 else "tolerance"
    return {
        "figure": figure.name,
        "old": old,
        "new": new,
        "change": change,
        "allowed": allowed,
        "limit from": source,
        "verdict": verdict,
    }


def _same_settings(old: Comparison, new: Comparison) -> None:
    # The same seed's run where there is one: a sweep of seeds has several splits and weights.
    before = {(e.label, e.devices): e.content for e in latest_of_each(old.finished)}
    same_seed = {(e.label, e.devices, _seed(e.content)): e.content for e in old.finished}
    for entry in latest_of_each(new.finished):
        where = (entry.label, entry.devices)
        was = same_seed.get((*where, _seed(entry.content))) or before.get(where)
        if was is None:
            continue
        for what, get in MUST_AGREE.items():
            if what not in _MAY_CHANGE and get(was) != get(entry.content):
                raise UserError(
                    f"{entry.run}: {what} was {_said(get(was))} and is "
                    f"{_said(get(entry.content))}, so the two experiments cannot be compared; "
                    "run the new one with the old one's settings"
                )


def _seed(content: dict[str, Any]) -> Any:
    return MUST_AGREE["seed"](content)


def _texts(row: pd.Series, metric: Metric) -> list[str]:
    """A row of :func:`compare` as the command prints it."""
    of_metric = row["figure"] == metric.of_test
    number = metric.text if of_metric else short_number
    change = metric.difference if of_metric else _percent
    cells = [
        Cell(row["old"], number, missing=ABSENT),
        Cell(row["new"], number, missing=ABSENT),
        Cell(row["change"], change, missing=ABSENT),
        Cell(row["allowed"], lambda value: change(value).lstrip("+"), missing=ABSENT),
        Cell(row["limit from"], missing=ABSENT),
    ]
    return [row["run"], row["figure"], *(cell.text for cell in cells), row["verdict"]]


def _percent(share: float) -> str:
    return f"{100 * share:+.1f} %"


def _named(side: Comparison) -> str:
    return " and ".join(folder.resolve().name for folder in side.folders)


def _said(value: Any) -> str:
    return "none" if value is None else str(value)
