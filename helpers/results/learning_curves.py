"""How quickly each framework learns, in epochs and on the clock."""

import math
from typing import Any

import pandas as pd

from helpers.results.comparability import ranks
from helpers.results.comparison import Comparison, Entry, latest_of_each
from helpers.results.comparison_tables import time_text


def history(entry: Entry) -> pd.DataFrame:
    """The record's epochs, with ``clock``: seconds of training and validation until their ends."""
    epochs = pd.DataFrame(entry.content.get("epochs") or [])
    if not epochs.empty:
        epochs["valid_auc"] = epochs["valid_auc"].astype(float)
        epochs["clock"] = (epochs["train_seconds"] + epochs["valid_seconds"]).cumsum()
    return epochs


def best_auc(entry: Entry) -> float:
    """The best mean validation AUC of any epoch; NaN where none could be computed."""
    epochs = history(entry)
    return math.nan if epochs.empty else float(epochs["valid_auc"].max())


def target(compared: Comparison) -> float | None:
    """The highest AUC, in steps of 0.01, that every finished run reached in validation.

    None where a run has none at all.
    """
    best = [best_auc(entry) for entry in latest_of_each(compared.finished)]
    if not best or any(math.isnan(value) for value in best):
        return None
    return math.floor(round(min(best) * 100, 6)) / 100


def time_to_auc(compared: Comparison, wanted: float | None = None) -> list[dict[str, Any]]:
    """For each run: the end of the first epoch whose mean validation AUC was at least ``wanted``.

    Keys: run (with its marks), ranks, best, epoch and seconds (None where it was not reached).
    ``wanted`` is :func:`target` by default. Nothing is interpolated between epochs.
    """
    wanted = target(compared) if wanted is None else wanted
    rows = []
    for entry in latest_of_each(compared.finished):
        epochs = history(entry)
        reached = epochs[epochs["valid_auc"] >= wanted] if wanted is not None else epochs[:0]
        first = None if reached.empty else reached.iloc[0]
        rows.append(
            {
                "run": entry.timed,
                "ranks": ranks(entry.content),
                "best": best_auc(entry),
                "epoch": None if first is None else int(first["epoch"]),
                "seconds": None if first is None else float(first["clock"]),
            }
        )
    return rows


def table(compared: Comparison, wanted: float | None = None) -> pd.DataFrame:
    """:func:`time_to_auc` as text for a reader, the quickest first of those that rank."""
    rows = time_to_auc(compared, wanted)
    rows.sort(key=lambda row: (row["ranks"] and row["seconds"]) or math.inf)
    texts = [
        {
            "run": row["run"],
            "time": "not reached" if row["seconds"] is None else time_text(row["seconds"]),
            "epoch": "-" if row["epoch"] is None else str(row["epoch"]),
            "best AUC": "n/a" if math.isnan(row["best"]) else f"{row['best']:.3f}",
        }
        for row in rows
    ]
    return pd.DataFrame(texts, columns=["run", "time", "epoch", "best AUC"]).set_index("run")
