"""Tables and charts from handmade records: one framework, several, and every kind of gap."""

from pathlib import Path

import pytest
import records

from helpers import paths
from helpers.frameworks import ROWS
from helpers.results import (
    by_class,
    caveats,
    charts,
    comparison,
    comparison_tables,
    machine_tables,
    runs,
    waits,
)
from helpers.results.charts import style
from helpers.results.comparison import Comparison

CHARTS = (charts.parts, charts.curves)
TABLES = (comparison_tables.runs, waits.table, machine_tables.machine, machine_tables.settings)


@pytest.fixture
def several(tmp_path: Path) -> Comparison:
    """Four frameworks; one on two numbers of devices, one with gaps, one skipped."""
    records.save(tmp_path, records.make("MXNet Gluon", 1, speed=110, gpu=True))
    records.save(tmp_path, records.make("PyTorch", 1, speed=100, gpu=True))
    records.save(tmp_path, records.make("PyTorch", 2, speed=180, auc=0.77, gpu=True))
    data_parallel = "PyTorch_MultiGPU_DataParallel"
    records.save(tmp_path, records.make("PyTorch", 2, notebook=data_parallel, speed=190, gpu=True))
    keras = records.make("Keras", 1, speed=80, gpu=True)
    reason = "not computable: no positive image in this split"
    keras["test"]["findings"][-1] |= {"auc": None, "low": None, "high": None, "reason": reason}
    return records.load(tmp_path, keras, records.short("Chainer", "skipped", "no compiler"))


def test_a_folder_may_be_named_from_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records.save(tmp_path / "sent", records.make("PyTorch", 1))
    monkeypatch.chdir(tmp_path)
    assert len(comparison.load("sent").entries) == 1
    assert comparison.load("elsewhere").folders == (paths.RUNS / "elsewhere",)


def test_the_table_of_all_runs_has_a_row_each_and_its_evidence(several: Comparison) -> None:
    assert [entry.run for entry in several.entries] == [
        "PyTorch, 1 device",
        "PyTorch, 2 devices",
        "PyTorch DataParallel, 2 devices",
        "Keras, 1 device",
        "MXNet Gluon, 1 device",
        "Chainer",
    ]
    table = comparison_tables.runs(several).frame
    assert list(table.index) == [
        "PyTorch DataParallel",
        "PyTorch",
        "Keras, 1 device",
        "MXNet Gluon, 1 device",
        "PyTorch, 1 device",
        "Chainer (skipped)",
    ]
    assert table.index.name == "on 2 devices"
    # 5 epochs of 1088 images at 100/s and 5 x 1 s of validation.
    assert table.loc["PyTorch, 1 device"].to_dict() == {
        "training (s)": "59.4",
        "images/s": "100",
        "test AUC": "0.750 (0.720 to 0.780)",
        "fair": "passed",
        "limited by": "data 18 %",
        "evidence": "record",
    }
    assert table.loc["Chainer (skipped)"].to_list() == [*["-"] * 5, "record"]


def test_findings_without_an_auc_and_not_in_the_mean_are_named(
    several: Comparison, tmp_path: Path
) -> None:
    said = caveats.remarks(several).frame["remark"]
    assert "no positive image" in said["Keras"]
    table = by_class.table(several).frame
    assert (table.loc["Hernia", "Keras"], table.loc["Effusion", "PyTorch"]) == ("n/a", "0.770")
    content = records.make("PyTorch")
    content["test"]["in_mean"].remove("Hernia")
    reason = "not in the mean: fewer than 5 positive images"
    content["test"]["findings"][-1] |= {"positives": 1, "reason": reason}
    compared = records.load(tmp_path / "other", content)
    assert f"Hernia: {reason}" in caveats.remarks(compared).frame["remark"].to_list()
    assert "test images: Hernia. auc.csv has" in by_class.table(compared).note


def test_no_auc_at_all(tmp_path: Path) -> None:
    content = records.make()
    content["test"] |= {"mean_auc": None, "mean_low": None, "mean_high": None, "in_mean": []}
    content["test"]["resamples"] = [None] * 200
    for row in content["test"]["findings"]:
        row |= {"auc": None, "low": None, "high": None, "reason": "not computable"}
    for epoch in content["epochs"]:
        epoch["valid_auc"] = None
    compared = records.load(tmp_path, content)
    assert comparison_tables.runs(compared).frame.loc["PyTorch", "test AUC"] == "n/a"
    assert records.drawn(charts.curves(compared)).axes


@pytest.mark.parametrize("state", ["failed", "interrupted", "skipped"])
def test_runs_that_did_not_finish_keep_their_reason(tmp_path: Path, state: str) -> None:
    content = records.make("Keras") | {"state": state, "reason": "ValueError: x"}
    for section in ("test", "synthetic", "loader", "training", "attribution"):
        del content[section]
    compared = records.load(tmp_path, content, records.make("PyTorch"))
    said = caveats.remarks(compared).frame.loc["Keras, 2 devices", "remark"]
    assert said == f"{state}: ValueError: x"
    assert comparison_tables.runs(compared).frame.index[-1] == f"Keras, 2 devices ({state})"
    assert comparison_tables.runs(compared).frame.index[0] == "PyTorch"
    for chart in CHARTS:
        chart(compared)


def test_without_records_one_sentence_says_how_to_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "RUNS", tmp_path)
    compared = comparison.load()
    said = comparison.how_to_begin(compared)
    assert said is not None and "make compare" in said
    assert all(table(compared).empty for table in TABLES)
    assert caveats.remarks(compared).empty and runs.frame(compared).empty
    assert [chart(compared) for chart in CHARTS] == [None] * len(CHARTS)


def test_nodes_are_named_with_their_launcher(tmp_path: Path) -> None:
    several = records.make("Keras", cluster=records.world(virtual=False))
    compared = records.load(tmp_path, records.make(), several)
    devices = machine_tables.machine(compared).frame.loc["devices"].set_index("runs")["value"]
    assert ", 2 by mpiexec 5.0.2 over eth0" in devices["Keras 2 x 1"]
    assert "mpiexec" not in devices["PyTorch"]


def test_colours_are_one_a_framework() -> None:
    assert len(set(style.COLOURS.values())) == len(style.COLOURS)
    assert set(style.COLOURS) == set(style.MARKERS) == {row.family for row in ROWS}
