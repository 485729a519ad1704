"""The article's numbers: those of its notebooks, and none required."""

import copy

import pandas as pd
import pytest

from helpers.results import published


def test_the_numbers_are_those_of_the_notebooks() -> None:
    numbers = published.results().set_index(["label", "devices"])
    assert numbers.loc[("PyTorch", 4), "seconds"] == 9 * 60 + 43
    rate = numbers.loc[("Keras", 1), "synthetic_images_per_second"]
    assert rate == pytest.approx(5 * 87_306 / (35 * 60 + 51))
    assert numbers["notebook"].str.contains("/blob/671e2a0").all()
    table = published.table().frame
    assert list(table.loc["TensorFlow"]) == ["33:29", "22:11", "1.51", "0.8009", "0.8120"]
    assert list(table.loc["PyTorch DataParallel"]) == ["-", "9:28", "-", "-", "0.8126"]


def test_missing_numbers_stay_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = copy.deepcopy(published.content())
    by_run = {(run["framework"], run["devices"]): run for run in found["runs"]}
    by_run["Keras", 1]["training"]["seconds"] = None
    by_run["Chainer", 4]["test"]["mean_auc"] = None
    monkeypatch.setattr(published, "content", lambda: found)
    assert list(published.table().frame.loc["Keras"]) == ["-", "17:50", "-", "0.8146", "0.8112"]
    assert published.table().frame.loc["Chainer", "test AUC, 4 GPUs"] == "-"
    assert pd.isna(published.results().set_index(["label", "devices"]).loc[("Keras", 1), "seconds"])
