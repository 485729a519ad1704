"""Measure how quickly each framework learns: in epochs, in seconds and in images."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pandas as pd

from helpers.record import tasks
from helpers.record.tasks import Metric
from helpers.results import tables
from helpers.results.comparison import KEPT, Comparison, Entry, latest_of_each
from helpers.results.ranking import ranked
from helpers.results.tables import ABSENT, Cell, Name, Table, of_run

NOT_REACHED = "not reached"
ENDS = "Times are those at the end of the first epoch that reached the value."


@lru_cache(maxsize=1024)
def history(entry: Entry) -> pd.DataFrame:
    """The record's epochs, with ``clock`` and ``seen``, of all until their ends.

    Seconds of training and validation, and images trained on.
    """
    epochs = pd.DataFrame(entry.content.get("epochs") or [])
    if not epochs.empty:
        for metric in tasks.of(entry.content["recipe"]).metrics:
            epochs[metric.of_epoch] = epochs[metric.of_epoch].astype(float)
        epochs["clock"] = (epochs["train_seconds"] + epochs["valid_seconds"]).cumsum()
        epochs["seen"] = epochs["images"].cumsum()
    return epochs


def drops(entry: Entry) -> list[int]:
    """The epochs after which the run's learning rate dropped, of those that it trained."""
    after = entry.content["recipe"].get("lr_milestones") or []
    return [epoch for epoch in after if epoch < len(entry.content.get("epochs") or [])]


def spread(group: Sequence[Entry]) -> pd.DataFrame:
    """:func:`history` of runs that repeat each other: medians by epoch, of those that all trained.

    The minimum and maximum of the runs are included under ``<name>_low`` and ``_high``.
    """
    each = [history(entry) for entry in group]
    known = [epochs.set_index("epoch") for epochs in each if not epochs.empty]
    if not known:
        return pd.DataFrame()
    whole = pd.concat([epochs.select_dtypes("number") for epochs in known], join="inner")
    groups = whole.groupby(level="epoch")
    middle = groups.median()
    ends = [
        getattr(groups, how)().add_suffix(end) for how, end in (("min", "_low"), ("max", "_high"))
    ]
    found = pd.concat([middle, *ends], axis=1)
    return found[groups.size() == len(known)].reset_index()


def best(entry: Entry, metric: Metric) -> float:
    """The best validation of any epoch; NaN where none could be computed."""
    epochs = history(entry)
    return math.nan if epochs.empty else float(epochs[metric.of_epoch].max())


def target(compared: Comparison) -> float | None:
    """The highest value, in steps of 0.01, that every finished run reached in validation.

    Of the metric that learning is shown by. None where a run has none at all.
    """
    found = [best(entry, compared.metric) for entry in latest_of_each(compared.finished)]
    if not found or any(math.isnan(value) for value in found):
        return None
    return math.floor(round(min(found) * 100, 6)) / 100


@dataclass(frozen=True)
class Reached:
    """The end of an epoch: its number, seconds and images trained on until then."""

    epoch: int
    seconds: float
    images: int


def reached(entry: Entry, metric: Metric, wanted: float) -> Reached | None:
    """The end of the first epoch whose validation was at least ``wanted``; None without such.

    Seconds are of training and validation. Nothing is interpolated between epochs.
    """
    epochs = history(entry)
    there = epochs if epochs.empty else epochs[epochs[metric.of_epoch] >= wanted]
    if there.empty:
        return None
    first = there.iloc[0]
    return Reached(int(first["epoch"]), float(first["clock"]), int(first["seen"]))


def time_to(compared: Comparison, wanted: float | None = None) -> list[dict[str, Any]]:
    """For each label and number of devices, the last run: when it first reached ``wanted``.

    Keys: run (with its marks), name (the same as a heading), ranks, best, and as :class:`Reached`
    epoch, seconds and images (None where it was not). ``wanted`` is :func:`target` by default.
    """
    wanted, metric = target(compared) if wanted is None else wanted, compared.metric
    rows = []
    for entry in latest_of_each(compared.finished):
        first = None if wanted is None else reached(entry, metric, wanted)
        rows.append(
            {
                "run": entry.timed,
                "name": of_run(entry),
                "ranks": entry in ranked(compared),
                "best": best(entry, metric),
                "epoch": first and first.epoch,
                "seconds": first and first.seconds,
                "images": first and first.images,
            }
        )
    return rows


def table(compared: Comparison, wanted: float | None = None) -> Table:
    """:func:`time_to` for a reader, the quickest first of those that rank."""
    metric, value = compared.metric, target(compared) if wanted is None else wanted
    rows = sorted(
        time_to(compared, wanted),
        key=lambda row: (row["ranks"] and row["seconds"]) or math.inf,
    )
    unit, clock = clock_of(compared)
    cells = [
        (
            row["name"],
            {
                f"time ({unit})": Cell(row["seconds"], clock, missing=NOT_REACHED),
                "epoch": Cell(row["epoch"], missing=ABSENT),
                f"best {metric.short}": Cell(row["best"], metric.text),
            },
        )
        for row in rows
    ]
    said = "" if value is None else f" of {metric.target(value)}"
    return tables.table(f"Time to a validation {metric.short}{said}", "run", cells, note=ENDS)


def clock_of(compared: Comparison) -> tuple[str, Callable[[float], str]]:
    """The unit and form of the times in these tables, by the longest training."""
    ends = [
        history(entry).get("clock", pd.Series(dtype=float)).max() for entry in compared.finished
    ]
    return tables.time_column(ends)


def targets(compared: Comparison) -> list[float]:
    """The values that the recipes of these runs set as targets, of the metric shown; none if none.

    In rising order.
    """
    recipes = [entry.content["recipe"] for entry in compared.finished]
    shown = [recipe for recipe in recipes if tasks.metric_of(recipe) is compared.metric]
    return sorted({value for recipe in shown for value in recipe.get("quality_targets", [])})


@lru_cache(maxsize=KEPT)
def to_targets(compared: Comparison) -> pd.DataFrame:
    """What each run took to each of the recipe's targets; a row a run and target.

    Columns: run, label, devices, seed, variant (which of an experiment's repeats it is), metric,
    target, epoch, seconds, images; the last three NaN where it was not reached.
    """
    metric = compared.metric
    rows = []
    for wanted in targets(compared):
        for entry in compared.finished:
            first = reached(entry, metric, wanted)
            rows.append(
                {
                    "run": entry.timed,
                    "label": entry.label,
                    "devices": entry.devices,
                    "seed": entry.content["recipe"]["seed"],
                    "variant": entry.variant,
                    "metric": metric.name,
                    "target": wanted,
                    "epoch": first and first.epoch,
                    "seconds": first and first.seconds,
                    "images": first and first.images,
                }
            )
    return pd.DataFrame(rows)


def targets_table(compared: Comparison) -> Table:
    """:func:`to_targets`: rows runs; for each target the time, and the images trained on.

    The quickest to the first target first, of those that rank.
    """
    metric, numbers = compared.metric, to_targets(compared)
    cells: dict[str, dict[Name, Cell]] = {}
    places: dict[str, float] = {}
    names = {entry.timed: of_run(entry) for entry in compared.finished}
    rivals = {entry.timed for entry in ranked(compared)}
    unit, clock = clock_of(compared)
    groups = numbers.groupby(["target", "run"], sort=False) if len(numbers) else ()
    for (wanted, run), group in groups:
        head = f"{metric.short} {metric.target(float(wanted))}"
        got = group.dropna(subset=["seconds"])
        of = "" if len(got) == len(group) else f"in {len(got)} of {len(group)} runs"
        cells.setdefault(run, {}).update(
            {
                Name(f"time ({unit})", above=head): _spread(got["seconds"], clock, NOT_REACHED, of),
                Name("images", above=head): _spread(got["images"], "{:,.0f}".format, ABSENT),
            }
        )
        place = float(got["seconds"].median()) if run in rivals and len(got) else math.inf
        places.setdefault(run, place)
    order = sorted(places, key=lambda run: places[run])
    return tables.table(
        "Time and images to the recipe's targets",
        "run",
        [(names[run], cells[run]) for run in order],
        note=f"{ENDS} Images counts the training images up to that time. With several runs, cells "
        "give the median of the runs that reached the target, with the minimum and maximum.",
        kind="wide",
    )


def _spread(values: pd.Series, form: Callable[[float], str], missing: str, note: str = "") -> Cell:
    if values.empty:
        return Cell(None, missing=missing)
    several = len(values) > 1
    low, high = (float(values.min()), float(values.max())) if several else (None, None)
    return Cell(float(values.median()), form, low, high, note)
