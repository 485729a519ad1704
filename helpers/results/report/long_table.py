"""Collect every number of the records in one long table, for custom plots."""

import io
from collections.abc import Iterator
from typing import Any

import pandas as pd

from helpers.results import comparability, learning_curves
from helpers.results.comparison import Comparison, Entry, results
from helpers.results.scaling import step_parts

_OF_RUN = (
    "experiment",
    "folder",
    "framework",
    "notebook",
    "label",
    "series",
    "devices",
    "nodes",
    "kind",
    "machine",
    "recipe",
    "precision",
    "seed",
    "variant",
    "marks",
)
COLUMNS = (*_OF_RUN, "measure", "epoch", "target", "part", "value")
_EPOCH = ("learning_rate", "train_loss", "valid_loss", "train_seconds", "valid_seconds", "images")
_NOT_MEASURED = ("label", "series", "devices", "nodes", "kind", "comparable", "marks")


def table(compared: Comparison) -> pd.DataFrame:
    """A row a value of a finished run; columns ``COLUMNS``.

    ``measure`` says what the value is: a column of ``comparison.results``; of an epoch those of the
    record, and images_so_far and seconds_so_far; seconds_to_target and images_to_target;
    step_seconds of a ``part`` of a step, one row a rank or round. What was not measured has no row.
    """
    rows = []
    for entry, (_, numbers) in zip(compared.finished, results(compared).iterrows(), strict=True):
        of_run = _of_run(entry)
        for more in _values(compared, entry, numbers.to_dict()):
            if more["value"] is not None and pd.notna(more["value"]):
                rows.append(of_run | more | {"value": float(more["value"])})
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame.astype({"epoch": "Int64", "devices": "Int64", "nodes": "Int64", "seed": "Int64"})


def parquet(compared: Comparison) -> bytes:
    """:func:`table` as a Parquet file."""
    buffer = io.BytesIO()
    table(compared).to_parquet(buffer, index=False)
    return buffer.getvalue()


def _of_run(entry: Entry) -> dict[str, Any]:
    content = entry.content
    return {
        "experiment": entry.folder.parent.name,
        "folder": entry.folder.name,
        "framework": content["framework"]["name"],
        "notebook": content["run"]["notebook"],
        "label": entry.label,
        "series": entry.series,
        "devices": entry.devices,
        "nodes": comparability.nodes(content),
        "kind": comparability.kind(content),
        "machine": content["run"]["host"],
        "recipe": content["recipe"]["name"],
        "precision": content["recipe"]["precision"],
        "seed": content["recipe"]["seed"],
        "variant": entry.variant,
        "marks": ", ".join(comparability.marks(content)),
    }


def _values(
    compared: Comparison, entry: Entry, numbers: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    for name, value in numbers.items():
        if name not in _NOT_MEASURED:
            yield {"measure": name, "value": value}
    metrics = [metric.of_epoch for metric in compared.task.metrics]
    seconds, images = 0.0, 0
    for epoch in entry.content["epochs"]:
        seconds += epoch["train_seconds"] + epoch["valid_seconds"]
        images += epoch["images"]
        so_far = {"seconds_so_far": seconds, "images_so_far": images}
        for name, value in {key: epoch.get(key) for key in (*_EPOCH, *metrics)}.items():
            yield {"measure": name, "epoch": epoch["epoch"], "value": value}
        for name, value in so_far.items():
            yield {"measure": name, "epoch": epoch["epoch"], "value": value}
    for wanted in learning_curves.targets(compared):
        got = learning_curves.reached(entry, compared.metric, wanted)
        if got is not None:
            yield {"measure": "seconds_to_target", "target": wanted, "value": got.seconds}
            yield {"measure": "images_to_target", "target": wanted, "value": got.images}
    how, parts = step_parts.parts_of(entry)
    for part, values in parts.items():
        for value in values:
            yield {"measure": f"step_seconds {how}", "part": part, "value": value}
