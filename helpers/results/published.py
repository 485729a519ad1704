"""Read the published numbers of Karmanov's article, which reports show next to measured ones.

The numbers are in ``published.json``. They are never mixed with records, and tables and charts
label them *published*. Each names its notebook, and says whether the notebook printed it
(``output``) or has it in a comment. An unpublished number is null.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from helpers import terminal
from helpers.results import tables
from helpers.results.comparison import Comparison
from helpers.results.tables import ABSENT, Cell, Table


def belong(compared: Comparison) -> bool:
    """Whether the article's numbers are comparable with these runs: the same task and network."""
    study = {"task": "multilabel", "network": "densenet121"}
    recipes = [e.content["recipe"] for e in compared.entries if "recipe" in e.content]
    return all(recipe.items() >= study.items() for recipe in recipes)


@cache
def content() -> dict[str, Any]:
    """The whole file: source, hardware, recipe, data, notes and runs."""
    path = Path(__file__).with_name("published.json")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def results() -> pd.DataFrame:
    """One row per published run, with its source; NaN if there is no number.

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


def table() -> Table:
    """One row per framework: its times, the speed-up from one to four GPUs, and the test AUC."""
    found = results().pivot(index="label", columns="devices", values=["seconds", "mean_auc"])
    rows = []
    for label in results()["label"].unique():
        (one, four), aucs = found["seconds"].loc[label], found["mean_auc"].loc[label]
        cells = {
            "1 GPU (min:s)": Cell(one, terminal.clock, missing=ABSENT),
            "4 GPUs (min:s)": Cell(four, terminal.clock, missing=ABSENT),
            "speed-up": Cell(one / four, "{:.2f}".format, missing=ABSENT),
            "test AUC, 1 GPU": Cell(aucs[1], "{:.4f}".format, missing=ABSENT),
            "test AUC, 4 GPUs": Cell(aucs[4], "{:.4f}".format, missing=ABSENT),
        }
        rows.append((label, cells))
    source = content()["source"]
    note = (
        f"These numbers were not measured here. They are from single runs on V100 GPUs, published "
        f"in {source['title']} by {source['author']}, {source['date']}, {source['address']}, with "
        f"the notebooks at {source['code']}/tree/{source['commit'][:7]}."
    )
    return tables.table(
        "The 2018 benchmark by Ilia Karmanov", "framework", rows, note=note, folded=True
    )
