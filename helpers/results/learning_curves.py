"""How quickly each framework learns: in epochs, on the clock, and by how many images it takes."""

import math
from typing import Any

import pandas as pd

from helpers.results.comparability import ranks
from helpers.results.comparison import Comparison, Entry, latest_of_each
from helpers.results.comparison_tables import time_text
from helpers.training import tasks
from helpers.training.tasks import Metric

NOT_REACHED = "not reached"


def history(entry: Entry) -> pd.DataFrame:
    """The record's epochs, with ``clock``: seconds of training and validation until their ends."""
    epochs = pd.DataFrame(entry.content.get("epochs") or [])
    if not epochs.empty:
        for metric in tasks.of(entry.content["recipe"]).metrics:
            epochs[metric.of_epoch] = epochs[metric.of_epoch].astype(float)
        epochs["clock"] = (epochs["train_seconds"] + epochs["valid_seconds"]).cumsum()
    return epochs


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


def time_to(compared: Comparison, wanted: float | None = None) -> list[dict[str, Any]]:
    """For each run: the end of the first epoch whose validation was at least ``wanted``.

    Keys: run (with its marks), ranks, best, epoch, seconds and images (trained on until then; None
    where it was not reached). ``wanted`` is :func:`target` by default. Nothing is interpolated
    between epochs.
    """
    wanted, metric = target(compared) if wanted is None else wanted, compared.metric
    rows = []
    for entry in latest_of_each(compared.finished):
        epochs = history(entry)
        seen = epochs["images"].cumsum()
        reached = epochs[epochs[metric.of_epoch] >= wanted] if wanted is not None else epochs[:0]
        first = None if reached.empty else reached.iloc[0]
        rows.append(
            {
                "run": entry.timed,
                "ranks": ranks(entry.content),
                "best": best(entry, metric),
                "epoch": None if first is None else int(first["epoch"]),
                "seconds": None if first is None else float(first["clock"]),
                "images": None if first is None else int(seen[reached.index[0]]),
            }
        )
    return rows


def table(compared: Comparison, wanted: float | None = None) -> pd.DataFrame:
    """:func:`time_to` as text for a reader, the quickest first of those that rank."""
    rows, metric = time_to(compared, wanted), compared.metric
    rows.sort(key=lambda row: (row["ranks"] and row["seconds"]) or math.inf)
    last = f"best {metric.short}"
    texts = [
        {
            "run": row["run"],
            "time": NOT_REACHED if row["seconds"] is None else time_text(row["seconds"]),
            "epoch": "-" if row["epoch"] is None else str(row["epoch"]),
            last: metric.text(row["best"]),
        }
        for row in rows
    ]
    return pd.DataFrame(texts, columns=["run", "time", "epoch", last]).set_index("run")


def targets(compared: Comparison) -> list[float]:
    """The values that the recipes of these runs set as targets, of the metric shown; none if none.

    In rising order.
    """
    recipes = [entry.content["recipe"] for entry in compared.finished]
    shown = [recipe for recipe in recipes if tasks.metric_of(recipe) is compared.metric]
    return sorted({value for recipe in shown for value in recipe.get("targets", [])})


def to_targets(compared: Comparison) -> pd.DataFrame:
    """What each run took to each of the recipe's targets; a row a run and target.

    Columns: run, metric, target, epoch, seconds, images; the last three NaN where it was not
    reached.
    """
    return pd.DataFrame(
        [
            {
                "run": row["run"],
                "metric": compared.metric.name,
                "target": wanted,
                "epoch": row["epoch"],
                "seconds": row["seconds"],
                "images": row["images"],
            }
            for wanted in targets(compared)
            for row in time_to(compared, wanted)
        ]
    )


def targets_table(compared: Comparison) -> pd.DataFrame:
    """:func:`to_targets` as text: rows runs; for each target the time, and the images trained on.

    The quickest to the first target first, of those that rank.
    """
    metric, cells = compared.metric, {}
    for wanted in targets(compared):
        rows = {row["run"]: row for row in time_to(compared, wanted)}
        head = f"{metric.short} {metric.target(wanted)}"
        cells[head, "time"] = {
            run: NOT_REACHED if row["seconds"] is None else time_text(row["seconds"])
            for run, row in rows.items()
        }
        cells[head, "images"] = {
            run: "-" if row["images"] is None else f"{row['images']:,}" for run, row in rows.items()
        }
    if not cells:
        return pd.DataFrame()
    order = list(table(compared, targets(compared)[0]).index)
    return pd.DataFrame(cells).loc[order].rename_axis("run")
