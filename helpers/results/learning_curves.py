"""Measure how quickly each framework learns: in epochs, in seconds and in images."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import geometric_mean
from typing import Any

import pandas as pd

from helpers.record import tasks
from helpers.record.tasks import Metric
from helpers.results import run_sets, tables
from helpers.results.comparison import KEPT, Comparison, Entry, repeats, with_ends
from helpers.results.tables import ABSENT, Cell, Name, Table

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
    return with_ends(groups)[groups.size() == len(known)].reset_index()


def on_same_batches(entries: Sequence[Entry]) -> str:
    """Whether runs of a seed on equally many devices had the same batches, and their losses.

    Empty where no two frameworks can be compared.
    """
    groups: dict[Any, list[Entry]] = {}
    for entry in entries:
        recipe, training = entry.content["recipe"], entry.content["training"]
        key = *(recipe[name] for name in ("seed", "batch_size", "precision")), entry.devices
        key += (entry.content["data"].get("sha256"),)
        if training.get("first_batches"):
            groups.setdefault(key, []).append(entry)
    several = [group for group in groups.values() if len({each.label for each in group}) > 1]
    if not several:
        return ""
    odd, counts, apart = list[Entry](), list[int](), list[float]()
    for group in several:
        firsts = [each.content["training"]["first_batches"] for each in group]
        counts.append(min(map(len, firsts)))
        of_most, _ = Counter(tuple(first[: counts[-1]]) for first in firsts).most_common(1)[0]
        pairs = zip(group, firsts, strict=True)
        odd += [each for each, first in pairs if tuple(first[: counts[-1]]) != of_most]
        losses = pd.concat([history(each).set_index("epoch")["train_loss"] for each in group])
        each_epoch = losses.groupby(level="epoch")
        apart.append(float(((each_epoch.max() - each_epoch.min()) / each_epoch.mean()).max()))
    if odd:
        return f"{run_sets.named(odd, entries)} trained on other batches than the other runs."
    return (
        "Runs of a seed on as many devices trained on the same batches, pixel by pixel: their "
        f"first {min(counts)} are equal. Their training losses differ by {max(apart):.1%} at most."
    ).replace("%", " %")


def best(entry: Entry, metric: Metric) -> float:
    """The best validation of any epoch; NaN where none could be computed."""
    epochs = history(entry)
    return math.nan if epochs.empty else float(epochs[metric.of_epoch].max())


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


def targets(compared: Comparison) -> list[float]:
    """The values that the recipes of these runs set as targets, of the metric shown; none if none.

    In rising order.
    """
    recipes = [entry.content["recipe"] for entry in compared.finished]
    shown = [recipe for recipe in recipes if tasks.metric_of(recipe) is compared.metric]
    return sorted({value for recipe in shown for value in recipe["quality_targets"]})


@lru_cache(maxsize=KEPT)
def main_target(compared: Comparison) -> float | None:
    """The highest of the recipe's targets among those that most rows reached in every run.

    None without targets, or if no row reached one.
    """
    groups, metric = list(repeats(compared.finished).values()), compared.metric
    counts = {
        value: sum(all(reached(entry, metric, value) for entry in group) for group in groups)
        for value in targets(compared)
    }
    most = max(counts.values(), default=0)
    return max((value for value, count in counts.items() if 0 < count == most), default=None)


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


def table(compared: Comparison) -> Table:
    """Rows runs; for each of the recipe's targets the time, and the images trained on."""
    metric, found = compared.metric, to_targets(compared)
    unit, clock = tables.time_column(found.get("seconds", ()))
    rows: dict[Name, dict[str, Cell]] = {}
    for (name, wanted), runs in found.groupby(["run", "target"], sort=False) if len(found) else ():
        head = f"{metric.short} {metric.target(wanted)}"
        got = runs.dropna(subset="seconds")
        of = "" if len(got) == len(runs) else f"in {len(got)} of {len(runs)} runs"
        rows.setdefault(Name(name), {}).update(
            {
                f"{head} ({unit})": _spread(got["seconds"], clock, NOT_REACHED, of),
                f"images to {head}": _spread(got["images"], "{:,.0f}".format, ABSENT),
            }
        )
    return tables.table(
        "Time and images to the recipe's targets",
        "run",
        rows.items(),
        note=f"{ENDS} Of several runs, cells hold the geometric mean of those that reached the "
        "target, with the minimum and maximum.",
        folded=True,
    )


def _spread(
    values: "pd.Series[float]", form: Callable[[float], str], missing: str, note: str = ""
) -> Cell:
    if values.empty:
        return Cell(None, missing=missing)
    low, high = (values.min(), values.max()) if len(values) > 1 else (None, None)
    return Cell(geometric_mean(values), form, low, high, note)
