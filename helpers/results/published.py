"""Read the article's published figures, which reports show next to measured ones.

The figures are in ``published.json``. They are never mixed with records, and tables and charts
label them *published*. Each figure names its notebook, and whether the notebook printed it
(``output``) or has it in a comment. An unpublished figure is null.
"""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from helpers import terminal
from helpers.results.comparison import Comparison

NAME = "published, 4 x V100, 2018"
"""The label of these figures in tables and charts with measured ones."""


def belong(compared: Comparison) -> bool:
    """Whether the figures are comparable with these runs: the same task and network."""
    return all_are(compared, {"task": "multilabel", "network": "densenet121"})


def all_are(compared: Comparison, study: dict[str, str]) -> bool:
    """Whether all runs are of a study's task and network; an old record that says neither is."""
    recipes = [e.content["recipe"] for e in compared.entries if "recipe" in e.content]
    return all((study | recipe).items() >= study.items() for recipe in recipes)


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


def training() -> pd.DataFrame:
    """The times for images from files and the AUCs; shaped as ``comparison_tables.training``."""
    return _table("seconds", auc=True)


def synthetic() -> pd.DataFrame:
    """The times for synthetic data; shaped as ``comparison_tables.synthetic``."""
    return _table("synthetic_seconds", auc=False)


def source() -> str:
    """Where the figures come from, in one line."""
    found = content()["source"]
    return (
        f"{found['author']}, {found['title']}, {found['date']}, {found['address']}; read from its "
        f"notebooks, {found['code']}/tree/{found['commit'][:7]}"
    )


def notes() -> list[str]:
    """What to know about the figures, the notebooks they were read from last."""
    found = content()
    read = {run["notebook"]: run["framework"] for run in found["runs"]}
    each = ", ".join(f"{notebook} ({framework})" for notebook, framework in read.items())
    commit = f"{found['source']['code']} at commit {found['source']['commit'][:7]}"
    return [*found["notes"], f"Read from {each}, in {commit}."]


def _or_dash(text: Callable[[float], str]) -> Callable[[float], str]:
    return lambda value: "-" if pd.isna(value) else text(value)


def _table(seconds: str, *, auc: bool) -> pd.DataFrame:
    """Frameworks by number of GPUs, as texts."""
    numbers = results()
    wide = numbers.pivot(index="label", columns="devices").reindex(numbers["label"].unique())
    cells = {}
    for count in sorted(numbers["devices"].unique()):
        head, times = f"{count} GPU{'s' if count > 1 else ''}", wide[seconds, count]
        cells[head, "time (min:s)"] = times.map(_or_dash(terminal.clock))
        if count > 1:
            cells[head, "speed-up"] = (wide[seconds, 1] / times).map(_or_dash("{:.2f}".format))
        if auc:
            cells[head, "test AUC"] = wide["mean_auc", count].map(_or_dash("{:.4f}".format))
    return pd.DataFrame(cells).rename_axis("framework")
