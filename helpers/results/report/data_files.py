"""Write the report's numbers unrounded: as CSV files, one long Parquet table, and JSON."""

import io
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pandas as pd

from helpers import record
from helpers.record.tasks import TASKS
from helpers.results import (
    conclusions,
    learning_curves,
    machine_tables,
    paired_test,
    published,
    scaling,
    waits,
)
from helpers.results.comparison import Comparison, Entry
from helpers.results.repeated_runs import summarise
from helpers.results.report.sections import title
from helpers.results.runs import frame

VERSION = 3
_SO_FAR = {"clock": "seconds_so_far", "seen": "images_so_far"}
_OF_RUN: dict[str, Callable[[Entry], Any]] = {
    "experiment": lambda e: e.folder.parent.name,
    "folder": lambda e: e.folder.name,
    "framework": lambda e: e.content["framework"]["name"],
    "notebook": lambda e: e.content["run"]["notebook"],
    "machine": lambda e: e.content["run"]["host"],
    "recipe": lambda e: e.content["recipe"]["name"],
    "precision": lambda e: e.content["recipe"]["precision"],
    "execution": lambda e: e.content["recipe"]["execution"],
    "variant": lambda e: e.variant,
}
_OF_FRAME = ["label", "series", "devices", "nodes", "kind", "seed", "marks"]
COLUMNS = (*_OF_RUN, *_OF_FRAME, "measure", "epoch", "target", "value")
_EPOCH = ("learning_rate", "train_loss", "valid_loss", "train_seconds", "valid_seconds", "images")
# The times and images to targets have a row a target.
_NOT_MEASURED = ["comparable", "ranks", "seconds_to_target", "images_to_target"]


def frames(compared: Comparison) -> dict[str, pd.DataFrame]:
    """The files by name, also those that would hold nothing. Numbers are not rounded.

    runs: a row a finished run. repeats: a row a framework and number of devices, with means or
    medians, and extremes. scaling: speed-ups and efficiency. targets: time and images to each of
    the recipe's. paired: differences of the metric
    on the same test images. epochs, auc (or classes and confusions), attribution, fairness,
    versions: what the records say, a row a value. published: the article's figures, with runs of
    its network.
    """
    task = compared.task
    return {
        "runs": frame(compared),
        "repeats": summarise(compared),
        "scaling": scaling.numbers(compared) if scaling.several(compared) else pd.DataFrame(),
        "epochs": _rows(compared.entries, lambda e: _history(e).to_dict("records")),
        "targets": learning_curves.to_targets(compared),
        **{each.file: pd.DataFrame() for each in TASKS.values()},
        task.file: _rows(
            compared.finished,
            lambda e: [row | _in_mean(e.content, row) for row in e.content["test"][task.outputs]],
        ),
        "confusions": _rows(compared.finished, lambda e: e.content["test"].get("confusions", [])),
        "paired": paired_test.differences(compared).reset_index(drop=True),
        "attribution": waits.numbers(compared).reset_index(),
        "fairness": _rows(
            compared.entries, lambda e: e.content.get("fairness", {}).get("checks", [])
        ),
        "versions": machine_tables.versions(compared).reset_index(),
        "published": published.results() if published.belong(compared) else pd.DataFrame(),
    }


def csv(frame: pd.DataFrame) -> str:
    """``frame`` as CSV."""
    return frame.apply(lambda column: column.map(_plain)).to_csv(index=False, lineterminator="\n")


def _plain(value: object) -> object:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else value


def _rows(
    entries: Sequence[Entry], of: Callable[[Entry], Iterable[dict[str, Any]]]
) -> pd.DataFrame:
    """The rows that each entry's record has, with its label and number of devices."""
    return pd.DataFrame(
        [{"label": e.label, "devices": e.devices} | row for e in entries for row in of(e)]
    )


def _history(entry: Entry) -> pd.DataFrame:
    return learning_curves.history(entry).rename(columns=_SO_FAR)


def _in_mean(content: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """Whether a finding counts in the mean; nothing of classes, which all count in top-1."""
    return {"in_mean": row["finding"] in content["test"]["in_mean"]} if "finding" in row else {}


def long_table(compared: Comparison) -> pd.DataFrame:
    """A row a value of a finished run; columns ``COLUMNS``.

    ``measure`` says what the value is: a column of ``runs.frame``; of an epoch those of the
    record, and images_so_far and seconds_so_far; seconds_to_target and images_to_target. What was
    not measured has no row.
    """
    runs = compared.finished
    if not runs:
        return pd.DataFrame(columns=list(COLUMNS))
    numbers = frame(compared)
    about = pd.DataFrame([{name: of(entry) for name, of in _OF_RUN.items()} for entry in runs])
    about = about.join(numbers[_OF_FRAME].assign(marks=numbers["marks"].map(", ".join)))
    epochs = pd.concat([_history(entry) for entry in runs], keys=range(len(runs))).droplevel(1)
    measures = [*_EPOCH, *(metric.of_epoch for metric in compared.task.metrics)]
    targets = learning_curves.to_targets(compared).reindex(columns=["target", "seconds", "images"])
    targets.index = targets.groupby("target").cumcount()
    parts = [
        numbers.drop(columns=[*_OF_FRAME, *_NOT_MEASURED]),
        epochs.reindex(columns=["epoch", *measures, *_SO_FAR.values()]),
        targets.rename(columns={of: f"{of}_to_target" for of in ("seconds", "images")}),
    ]
    keys = [*about, "epoch", "target"]
    each = [
        about.join(part, how="right").melt(
            [key for key in keys if key in (*about, *part)], var_name="measure"
        )
        for part in parts
    ]
    found = pd.concat(each).dropna(subset="value").reindex(columns=list(COLUMNS))
    whole = dict.fromkeys(("epoch", "devices", "nodes", "seed"), "Int64")
    return found.astype({**whole, "value": float}).reset_index(drop=True)


def parquet(compared: Comparison) -> bytes:
    """:func:`long_table` as a Parquet file."""
    buffer = io.BytesIO()
    long_table(compared).to_parquet(buffer, index=False)
    return buffer.getvalue()


def as_json(compared: Comparison) -> str:
    """``report`` (the form's version), title, headline, answers, experiments, left_out, tables.

    ``tables`` holds the rows of each CSV file (``frames``), by its name; a value that is
    missing is null.
    """
    tables = {
        name: [record.plain(row) for row in frame.to_dict("records")]
        for name, frame in frames(compared).items()
        if not frame.empty
    }
    found: dict[str, Any] = {
        "report": VERSION,
        "title": title(compared),
        "headline": conclusions.headline(compared),
        "answers": [
            {"question": answer.question, "verdict": answer.verdict, "text": answer.text}
            for answer in conclusions.answers(compared)
        ],
        "experiments": [folder.resolve().name for folder in compared.folders],
        "left_out": list(compared.left_out),
        "tables": tables,
    }
    return json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False)
