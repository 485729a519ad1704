"""The figures of the article that this project repeats, to place one's own results by.

They live in ``published.json``, shaped like records but never mixed with them: whatever shows
them says *published*.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

NAME = "published, 4 x V100, 2018"
"""How these figures are called wherever they stand beside measured ones."""


@cache
def content() -> dict[str, Any]:
    """The whole file: source, hardware, recipe, data, notes and runs."""
    path = Path(__file__).with_name("published.json")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def results() -> pd.DataFrame:
    """One row a published run, numbers only.

    Columns: label, devices, seconds, synthetic_seconds, images_per_second and
    synthetic_images_per_second (worked out from the time and 5 epochs of 87,306 images; for files
    the time contains validation, so it is a little too low), mean_auc.
    """
    found = content()
    seen = found["recipe"]["epochs"] * found["data"]["images"]["train"]
    rows = []
    for run in found["runs"]:
        seconds = 60.0 * run["training"]["minutes"]
        synthetic = 60.0 * run["synthetic"]["minutes"]
        rows.append(
            {
                "label": run["framework"],
                "devices": run["devices"],
                "seconds": seconds,
                "synthetic_seconds": synthetic,
                "images_per_second": seen / seconds,
                "synthetic_images_per_second": seen / synthetic,
                "mean_auc": run["test"]["mean_auc"],
            }
        )
    return pd.DataFrame(rows).astype({"mean_auc": float})


def training() -> pd.DataFrame:
    """The article's table for images from files, in minutes; shaped as ``tables.training``."""
    return _table("seconds", auc=True)


def synthetic() -> pd.DataFrame:
    """The article's table for synthetic data, in minutes; shaped as ``tables.synthetic``."""
    return _table("synthetic_seconds", auc=False)


def source() -> str:
    """Where the figures come from, in one line."""
    found = content()["source"]
    return f"{found['author']}, {found['title']}, {found['date']}, {found['address']}"


def _table(seconds: str, *, auc: bool) -> pd.DataFrame:
    numbers = results().set_index(["label", "devices"])
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for (label, count), row in numbers.iterrows():  # type: ignore[misc]
        head = f"{count} GPU{'s' if count > 1 else ''}"
        texts = {"time (min)": f"{row[seconds] / 60:.0f}"}
        if count > 1:
            texts["speed-up"] = f"{numbers.loc[(label, 1), seconds] / row[seconds]:.1f}"
        if auc:
            texts["test AUC"] = "-" if pd.isna(row["mean_auc"]) else f"{row['mean_auc']:.3f}"
        for name, text in texts.items():
            cells.setdefault((head, name), {})[label] = text
    return pd.DataFrame(cells).rename_axis("framework")
