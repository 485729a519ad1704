"""Measure how quickly each framework learns: in epochs, in seconds and in images."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pandas as pd

from helpers.record import tasks
from helpers.record.tasks import Metric
from helpers.results import run_sets
from helpers.results.comparison import KEPT, Comparison, Entry, repeats, with_ends

NOT_REACHED = "not reached"


@lru_cache(maxsize=1024)
def history(entry: Entry) -> pd.DataFrame:
    """The record's epochs, with ``clock`` and ``seen`` at the end of each.

    These are the seconds of training and validation, and the images trained on.
    """
    epochs = pd.DataFrame(entry.content.get("epochs") or [])
    if not epochs.empty:
        for metric in tasks.of(entry.content["recipe"]).metrics:
            epochs[metric.of_epoch] = epochs[metric.of_epoch].astype(float)
        epochs["clock"] = (epochs["train_seconds"] + epochs["valid_seconds"]).cumsum()
        epochs["seen"] = epochs["images"].cumsum()
    return epochs


def spread(group: Sequence[Entry]) -> pd.DataFrame:
    """:func:`history` of repeats: medians by epoch, for the epochs that all runs trained.

    ``<name>_low`` and ``_high`` hold the minimum and maximum of the runs.
    """
    each = [history(entry) for entry in group]
    known = [epochs.set_index("epoch") for epochs in each if not epochs.empty]
    if not known:
        return pd.DataFrame()
    whole = pd.concat([epochs.select_dtypes("number") for epochs in known], join="inner")
    groups = whole.groupby(level="epoch")
    return with_ends(groups)[groups.size() == len(known)].reset_index()


def on_same_batches(entries: Sequence[Entry]) -> str:
    """Whether runs with the same seed and number of devices had the same batches, and their losses.

    Empty if no two frameworks can be compared.
    """
    groups: dict[Any, list[Entry]] = {}
    for entry in entries:
        recipe, data = entry.content["recipe"], entry.content["data"]
        same = (recipe["seed"], recipe["batch_size"], recipe["precision"], data.get("sha256"))
        if entry.content["training"].get("first_batches"):
            groups.setdefault((*same, entry.devices), []).append(entry)
    several = [group for group in groups.values() if len({each.label for each in group}) > 1]
    if not several:
        return ""
    odd, counts, apart = list[Entry](), list[int](), list[float]()
    for group in several:
        firsts = [each.content["training"]["first_batches"] for each in group]
        counts.append(min(map(len, firsts)))
        begun = [tuple(first[: counts[-1]]) for first in firsts]
        of_most, _ = Counter(begun).most_common(1)[0]
        odd += [each for each, first in zip(group, begun, strict=True) if first != of_most]
        losses = pd.concat([history(each).set_index("epoch")["train_loss"] for each in group])
        each_epoch = losses.groupby(level="epoch")
        apart.append(float(((each_epoch.max() - each_epoch.min()) / each_epoch.mean()).max()))
    if odd:
        return f"{run_sets.named(odd, entries)} trained on other batches than the other runs."
    return (
        "Runs of a seed on as many devices trained on the same batches, pixel by pixel: their "
        f"first {min(counts)} are equal. Their training losses differ by {max(apart):.1%} at most."
    ).replace("%", " %")


def reached(entry: Entry, metric: Metric, wanted: float) -> dict[str, Any]:
    """Epoch, seconds and images until the end of the first epoch that reached ``wanted``.

    Empty if no epoch did. Seconds include training and validation; nothing is interpolated.
    """
    epochs = history(entry)
    there = epochs if epochs.empty else epochs[epochs[metric.of_epoch] >= wanted]
    if there.empty:
        return {}
    epoch, clock, seen = there.iloc[0][["epoch", "clock", "seen"]]
    return {"epoch": int(epoch), "seconds": float(clock), "images": int(seen)}


def targets(compared: Comparison) -> list[float]:
    """The shown metric's values that the recipes of these runs set as targets, in rising order."""
    recipes = [entry.content["recipe"] for entry in compared.finished]
    shown = [recipe for recipe in recipes if tasks.metric_of(recipe) is compared.metric]
    return sorted({value for recipe in shown for value in recipe["quality_targets"]})


@lru_cache(maxsize=KEPT)
def main_target(compared: Comparison) -> float | None:
    """The highest of the recipe's targets that most rows reached in every run.

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
    """What each run needed to reach each of the recipe's targets: one row per run and target.

    Columns: run, label, devices, seed, variant (which of an experiment's repeats it is), metric,
    target, epoch, seconds, images; the last three are NaN if it was not reached.
    """
    nothing = dict.fromkeys(("epoch", "seconds", "images"))
    return pd.DataFrame(
        [
            {
                "run": entry.timed,
                "label": entry.label,
                "devices": entry.devices,
                "seed": entry.content["recipe"]["seed"],
                "variant": entry.variant,
                "metric": compared.metric.name,
                "target": wanted,
                **(reached(entry, compared.metric, wanted) or nothing),
            }
            for wanted in targets(compared)
            for entry in compared.finished
        ]
    )
