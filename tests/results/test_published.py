"""The article's figures: each with its source, the same wherever they stand, and none required."""

import copy
import re
from typing import Any

import pandas as pd
import pytest

from helpers import paths
from helpers.results import published

FIGURES = {"training": "seconds", "synthetic": "seconds", "test": "mean_auc"}


def runs() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = published.content()["runs"]
    return found


@pytest.mark.parametrize("run", runs(), ids=lambda run: f"{run['framework']}-{run['devices']}")
def test_every_figure_has_its_source(run: dict[str, Any]) -> None:
    assert re.fullmatch(r"notebooks/[\w-]+_MultiGPU[\w-]*\.ipynb", run["notebook"])
    assert re.fullmatch("[0-9a-f]{40}", published.content()["source"]["commit"])
    for part, figure in FIGURES.items():
        assert run[part].keys() == {figure, "read"}
        assert run[part]["read"] in published.content()["read"]
        assert run[part][figure] is not None
    assert run["training"]["seconds"] > run["synthetic"]["seconds"] > 5 * 60
    assert 0.5 < run["test"]["mean_auc"] < 0.9


def test_the_figures_are_those_of_the_notebooks() -> None:
    numbers = published.results().set_index(["label", "devices"])
    assert numbers.loc[("TensorFlow", 1), "mean_auc"] == 0.8009
    assert numbers.loc[("PyTorch", 4), "mean_auc"] == 0.8084
    assert numbers.loc[("PyTorch DataParallel", 4), "mean_auc"] == 0.8126
    assert numbers.loc[("PyTorch", 4), "seconds"] == 9 * 60 + 43
    rate = numbers.loc[("Keras", 1), "synthetic_images_per_second"]
    assert rate == pytest.approx(5 * 87_306 / (35 * 60 + 51))
    assert numbers["notebook"].str.contains("/blob/671e2a0").all()
    table = published.table().frame
    assert list(table.loc["TensorFlow"]) == ["33:29", "22:11", "1.51", "0.8009", "0.8120"]
    assert list(table.loc["PyTorch DataParallel"]) == ["-", "9:28", "-", "-", "0.8126"]


def test_readme_names_the_source() -> None:
    text = (paths.ROOT / "README.md").read_text(encoding="utf-8")
    assert published.content()["source"]["address"] in text


def test_missing_figures_stay_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A null is no 0, and no reason to fail."""
    found = copy.deepcopy(published.content())
    by_run = {(run["framework"], run["devices"]): run for run in found["runs"]}
    by_run["Keras", 1]["training"]["seconds"] = None
    by_run["Chainer", 4]["test"]["mean_auc"] = None
    monkeypatch.setattr(published, "content", lambda: found)
    assert list(published.table().frame.loc["Keras"]) == ["-", "17:50", "-", "0.8146", "0.8112"]
    assert published.table().frame.loc["Chainer", "test AUC, 4 GPUs"] == "-"
    assert pd.isna(published.results().set_index(["label", "devices"]).loc[("Keras", 1), "seconds"])
