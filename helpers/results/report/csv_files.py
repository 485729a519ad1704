"""Write the report's numbers as CSV files."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from helpers.record.tasks import TASKS
from helpers.results import (
    by_class,
    comparison_tables,
    learning_curves,
    paired_test,
    published,
    wait_causes,
)
from helpers.results.comparison import Comparison, results
from helpers.results.repeated_runs import summarise
from helpers.results.scaling import cost, speed, speedup_factors, step_parts

_SO_FAR = {"clock": "seconds_so_far", "seen": "images_so_far"}
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def frames(compared: Comparison) -> dict[str, pd.DataFrame]:
    """The files by name, also those that would hold nothing. Numbers are not rounded.

    runs: a row a finished run. repeats: a row a framework and number of devices, with medians
    and extremes. scaling: speed-up and efficiency. split: hardware and statistical efficiency to
    each target. step_parts: where a step goes. cost: energy, money, memory. targets:
    time and images to each of the recipe's. paired: differences of the metric on the same test
    images. epochs, auc (or classes and confusions), attribution, fairness, versions: what the
    records say, a row a value. published: the article's figures, with runs of its network.
    """
    return {
        "runs": results(compared),
        "repeats": summarise(compared),
        "scaling": speed.numbers(compared) if speed.several(compared) else pd.DataFrame(),
        "split": _splits(compared) if speedup_factors.several(compared) else pd.DataFrame(),
        "step_parts": step_parts.numbers(compared),
        "cost": cost.numbers(compared),
        "epochs": _epochs(compared),
        "targets": learning_curves.to_targets(compared),
        **{task.file: pd.DataFrame() for task in TASKS.values()},
        compared.task.file: _by_class(compared),
        "confusions": by_class.confusion_rows(compared),
        "paired": paired_test.differences(compared).reset_index(drop=True),
        "attribution": wait_causes.numbers(compared).reset_index(),
        "fairness": _fairness(compared),
        "versions": comparison_tables.versions(compared).reset_index(),
        "published": published.results() if published.belong(compared) else pd.DataFrame(),
    }


def _splits(compared: Comparison) -> pd.DataFrame:
    """Of each of the recipe's targets; of the one that is shown where it has none."""
    wanted: Sequence[float | None] = learning_curves.targets(compared) or [None]
    return pd.concat(
        [speedup_factors.numbers(compared, value) for value in wanted], ignore_index=True
    )


def csv(frame: pd.DataFrame) -> str:
    """``frame`` as CSV. Text that a spreadsheet would take for a formula gets a leading quote."""
    safe = frame.rename(columns=_plain).apply(lambda column: column.map(_plain))
    return safe.to_csv(index=False, lineterminator="\n")


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        value = ", ".join(map(str, value))
    if isinstance(value, str) and len(value) > 1 and value.startswith(_FORMULA):
        return f"'{value}"
    return value


def _epochs(compared: Comparison) -> pd.DataFrame:
    parts = []
    for entry in compared.entries:
        epochs = learning_curves.history(entry).copy()
        if not epochs.empty:
            epochs.insert(0, "devices", entry.devices)
            epochs.insert(0, "label", entry.label)
            parts.append(epochs.rename(columns=_SO_FAR))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _by_class(compared: Comparison) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"label": entry.label, "devices": entry.devices} | row | _in_mean(entry.content, row)
            for entry in compared.finished
            for row in entry.content["test"][compared.task.outputs]
        ]
    )


def _in_mean(content: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """Whether a finding counts in the mean; in older records each did that could be computed.

    Nothing of classes, which all count in top-1.
    """
    if "finding" not in row:
        return {}
    counted = content["test"].get("in_mean")
    return {"in_mean": row["auc"] is not None if counted is None else row["finding"] in counted}


def _fairness(compared: Comparison) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"label": entry.label, "devices": entry.devices} | check
            for entry in compared.entries
            for check in entry.content.get("fairness", {}).get("checks", [])
        ]
    )
