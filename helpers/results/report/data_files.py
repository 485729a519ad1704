"""Write the report's numbers unrounded: as CSV files and JSON."""

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


def frames(compared: Comparison) -> dict[str, pd.DataFrame]:
    """All files by name, including empty ones. Numbers are not rounded.

    runs: one row per finished run. repeats: one row per framework and number of devices, with means
    or medians, and extremes. scaling: speed-ups and efficiency. targets: time and images to each of
    the recipe's. paired: differences of the metric on the same test images. epochs, auc (or
    classes), attribution, fairness, versions: the contents of the records, one row per
    value. published: the numbers of Karmanov's article, with runs of its network.
    """
    task = compared.task
    return {
        "runs": frame(compared),
        "repeats": summarise(compared),
        "scaling": scaling.numbers(compared) if scaling.several(compared) else pd.DataFrame(),
        "epochs": _rows(compared.entries, _epochs),
        "targets": learning_curves.to_targets(compared),
        **{each.file: pd.DataFrame() for each in TASKS.values()},
        task.file: _rows(
            compared.finished,
            lambda e: [row | _in_mean(e.content, row) for row in e.content["test"][task.outputs]],
        ),
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
    """The rows of each entry's record, with its label and number of devices."""
    return pd.DataFrame(
        [{"label": e.label, "devices": e.devices} | row for e in entries for row in of(e)]
    )


def _epochs(entry: Entry) -> list[dict[str, Any]]:
    names = {"clock": "seconds_so_far", "seen": "images_so_far"}
    return learning_curves.history(entry).rename(columns=names).to_dict("records")  # type: ignore[return-value]


def _in_mean(content: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """Whether a finding counts in the mean; nothing for classes, which all count in top-1."""
    return {"in_mean": row["finding"] in content["test"]["in_mean"]} if "finding" in row else {}


def as_json(compared: Comparison) -> str:
    """``report`` (the form's version), title, headline, answers, experiments, left_out, tables.

    ``tables`` holds the rows of each CSV file (``frames``) by name; a missing value is null.
    """
    tables = {
        name: [record.plain(row) for row in frame.to_dict("records")]
        for name, frame in frames(compared).items()
        if not frame.empty
    }
    found: dict[str, Any] = {
        "report": 3,
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
