"""Read the article's published figures, which reports show next to measured ones.

The figures are in ``published.json``. They are never mixed with records, and tables and charts
label them *published*. Each figure names its notebook, and whether the notebook printed it
(``output``) or has it in a comment. An unpublished figure is null.
"""

import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from helpers import terminal
from helpers.results import tables
from helpers.results.comparison import Comparison
from helpers.results.tables import ABSENT, Cell, Name, Table, of_label


def belong(compared: Comparison) -> bool:
    """Whether the figures are comparable with these runs: the same task and network."""
    return all_are(compared, {"task": "multilabel", "network": "densenet121"})


def all_are(compared: Comparison, study: dict[str, str]) -> bool:
    """Whether all runs are of a study's task and network."""
    recipes = [e.content["recipe"] for e in compared.entries if "recipe" in e.content]
    return all(recipe.items() >= study.items() for recipe in recipes)


@cache
def content() -> dict[str, Any]:
    """The whole file: source, hardware, recipe, data, notes and runs."""
    path = Path(__file__).with_name("published.json")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def results() -> pd.DataFrame:
    """One row a published run, and where it was read; NaN where there is no figure.

    Columns: label, devices, seconds, synthetic_seconds, images_per_second and
    synthetic_images_per_second (worked out from the time and 5 epochs of 87,306 images; for files
    the time contains validation, so it is a little too low), mean_auc, notebook (its address).
    """
    found = content()
    code = found["source"]
    rows = [
        {
            "label": run["framework"],
            "devices": run["devices"],
            "seconds": run["training"]["seconds"],
            "synthetic_seconds": run["synthetic"]["seconds"],
            "mean_auc": run["test"]["mean_auc"],
            "notebook": f"{code['code']}/blob/{code['commit']}/{run['notebook']}",
        }
        for run in found["runs"]
    ]
    numbers = ["seconds", "synthetic_seconds", "mean_auc"]
    table = pd.DataFrame(rows).astype(dict.fromkeys(numbers, float))
    seen = found["recipe"]["epochs"] * found["data"]["images"]["train"]
    for seconds in numbers[:2]:
        table[seconds.replace("seconds", "images_per_second")] = seen / table[seconds]
    return table


def training() -> Table:
    """The times for images from files and the AUCs."""
    note = "These figures are from the article: 5 epochs of 87,306 images at 224 px."
    return _table("Image files, published", "seconds", note)


def synthetic() -> Table:
    """The times for synthetic data."""
    return _table(
        "Synthetic data, published", "synthetic_seconds", "These figures are from the article."
    )


def _table(title: str, seconds: str, note: str) -> Table:
    """Frameworks by number of GPUs."""
    rows: dict[Name, dict[Name, Cell]] = {}
    alone: dict[str, float] = {}
    for run in results().sort_values("devices", kind="stable").to_dict("records"):
        count, label = run["devices"], run["label"]
        alone.setdefault(label, run[seconds] if count == 1 else math.nan)
        cells = {"time (min:s)": Cell(run[seconds], terminal.clock, missing=ABSENT)}
        if count > 1:
            speed_up = alone[label] / run[seconds]
            cells["speed-up"] = Cell(speed_up, "{:.2f}".format, missing=ABSENT)
        if seconds == "seconds":
            cells["test AUC"] = Cell(run["mean_auc"], "{:.4f}".format, missing=ABSENT)
        above = f"{count} GPU{'s' * (count > 1)}"
        rows.setdefault(of_label(label), {}).update(
            {Name(text, above=above): cell for text, cell in cells.items()}
        )
    order = dict.fromkeys(map(of_label, results()["label"]))
    found = [(name, rows[name]) for name in order]
    return tables.table(title, "framework", found, note=note, kind="published")


def source() -> str:
    """Where the figures come from, in one line."""
    found = content()["source"]
    return (
        f"The article is {found['title']} by {found['author']}, {found['date']}, "
        f"{found['address']}. The figures come from its notebooks, "
        f"{found['code']}/tree/{found['commit'][:7]}"
    )


def notes() -> list[str]:
    """What to know about the figures."""
    return list(content()["notes"])


def notebooks() -> tuple[str, list[str]]:
    """A heading, and the notebook with each framework's figures."""
    found = content()
    read = {run["notebook"]: run["framework"] for run in found["runs"]}
    return (
        f"Notebooks with these figures, at commit {found['source']['commit'][:7]}",
        [f"{framework}: {notebook}" for notebook, framework in read.items()],
    )


class Point(NamedTuple):
    """One published figure, against one GPU."""

    devices: int
    efficiency: float
    """1 is perfect."""


POINTS = (Point(4, 0.88), Point(128, 0.7916))
"""ChainerMN's."""
STUDY = {"task": "multiclass", "network": "resnet50"}
SCALING_NAME = "published: ChainerMN on GPUs, 2017"


def points(compared: Comparison) -> Sequence[Point]:
    """ChainerMN's points, if all runs have the network and the task of its study."""
    if not any(entry.task for entry in compared.entries) or not all_are(compared, STUDY):
        return ()
    return POINTS


def scaling_notes(compared: Comparison) -> list[str]:
    """Notes on these points, if they are shown with the runs."""
    found = points(compared)
    if not found:
        return []
    each = " and ".join(f"{100 * p.efficiency:.0f} % on {p.devices} GPUs" for p in found)
    return [
        f"ChainerMN's study trained ResNet50 on ImageNet at 224 px: an efficiency of {each} "
        "against one GPU, and a top-1 of 71 to 72 % on up to 128 GPUs. The hardware and the "
        "images differ from those of these runs.",
        "These figures come from the post https://chainer.org/general/2017/02/08/"
        "Performance-of-Distributed-Deep-Learning-Using-ChainerMN.html and from Akiba, Fukuda, "
        "Suzuki 2017, https://arxiv.org/abs/1710.11351. That paper gives 90 % for 128 GPUs against "
        "four.",
    ]
