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
TABLES = (
    comparison_tables.runs,
    waits.table,
    machine_tables.machine,
    machine_tables.settings,
)


@pytest.fixture
def several(tmp_path: Path) -> Comparison:
    """Four frameworks; one on two numbers of devices, one with gaps, one skipped."""
    records.save(tmp_path, records.make("MXNet Gluon", 1, speed=110, gpu=True))
    records.save(tmp_path, records.make("PyTorch", 1, speed=100, gpu=True))
    records.save(tmp_path, records.make("PyTorch", 2, speed=180, auc=0.77, gpu=True))
    exp_loss = "PyTorch_MultiGPU_Exp_Loss"
    records.save(tmp_path, records.make("PyTorch", 2, notebook=exp_loss, speed=190, gpu=True))
    keras = records.make("Keras", 1, speed=80, gpu=True)
    reason = "not computable: no positive image in this part"
    keras["test"]["findings"][-1] |= {"auc": None, "low": None, "high": None, "reason": reason}
    return records.load(tmp_path, keras, records.short("Chainer", "skipped", "no compiler"))


def test_a_folder_may_be_named_from_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records.save(tmp_path / "sent", records.make("PyTorch", 1))
    monkeypatch.chdir(tmp_path)
    assert len(comparison.load("sent").entries) == 1
    assert comparison.load("elsewhere").folders == (paths.RUNS / "elsewhere",)


def test_runs_stand_in_the_fixed_order(several: Comparison) -> None:
    assert [entry.run for entry in several.entries] == [
        "PyTorch, 1 device",
        "PyTorch, 2 devices",
        "PyTorch DataParallel, 2 devices",
        "Keras, 1 device",
        "MXNet Gluon, 1 device",
        "Chainer",
    ]


def test_the_table_of_all_runs_has_a_row_each_and_its_evidence(several: Comparison) -> None:
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
    assert list(table.columns) == [
        "training (s)",
        "images/s",
        "test AUC",
        "fair",
        "limited by",
        "evidence",
    ]
    # 5 epochs of 1088 images at 100/s and 5 x 1 s of validation; 1024 images at 180/s.
    assert table.loc["PyTorch, 1 device"].to_list() == [
        "59.4",
        "100",
        "0.750 (0.720 to 0.780)",
        "passed",
        "data 18 %",
        "record",
    ]
    assert table.loc["Chainer (skipped)"].to_list() == [*["-"] * 5, "record"]


def test_auc_that_cannot_be_computed_is_said_not_dropped(several: Comparison) -> None:
    said = caveats.remarks(several).frame["remark"]
    assert "no positive image" in said["Keras"]
    table = by_class.table(several).frame
    assert (table.loc["Hernia", "Keras"], table.loc["Effusion", "PyTorch"]) == ("n/a", "0.770")


def test_findings_that_are_not_in_the_mean_are_listed_by_name(tmp_path: Path) -> None:
    content = records.make("PyTorch")
    content["test"]["in_mean"].remove("Hernia")
    reason = "not in the mean: fewer than 5 positive images"
    content["test"]["findings"][-1] |= {"positives": 1, "reason": reason}
    compared = records.load(tmp_path, content)
    assert f"Hernia: {reason}" in caveats.remarks(compared).frame["remark"].to_list()
    assert "test images: Hernia. auc.csv has" in by_class.table(compared).note


def test_the_range_over_runs_is_not_taken_for_the_interval_over_patients(tmp_path: Path) -> None:
    for name, auc in (("a", 0.74), ("b", 0.75), ("c", 0.78)):
        records.save(tmp_path / name, records.make(auc=auc))
    one = comparison.load(tmp_path / "a")
    assert comparison_tables.runs(one).frame.loc["PyTorch", "test AUC"] == (
        "0.740 (0.710 to 0.770)"
    )
    three = comparison.load([tmp_path / name for name in "abc"])
    assert comparison_tables.runs(three).frame.loc["PyTorch", "test AUC"] == (
        "0.750 (0.740 to 0.780)"
    )


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


def test_what_differs_between_runs_is_not_comparable(tmp_path: Path) -> None:
    records.save(tmp_path, records.make("PyTorch"))
    other = records.make("Keras")
    other["recipe"]["seed"] = 3
    other["fairness"]["comparable"] = False
    other["fairness"]["checks"][0]["verdict"] = "fail"
    compared = records.load(tmp_path, other)
    said = caveats.remarks(compared).frame["remark"]
    assert said["seed differs"] == ("not comparable: 0 (PyTorch, 2 devices); 3 (Keras, 2 devices)")
    assert said["Keras"] == "fairness check not passed: logits"
    assert "share cores" in said["every run"]


def test_one_broken_record_does_not_hide_the_others(tmp_path: Path) -> None:
    records.save(tmp_path, records.make())
    (tmp_path / "Broken-2x").mkdir()
    (tmp_path / "Broken-2x" / "record.json").write_text("{", encoding="utf-8")
    compared = comparison.load(tmp_path)
    assert comparison_tables.runs(compared).frame.index[0] == "PyTorch"
    assert (
        "not a JSON file of this project"
        in caveats.remarks(compared).frame.loc["a record", "remark"]
    )
    assert comparison_tables.runs(compared).frame.index[-1] == "a record (left out)"


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


def test_every_table_and_chart_of_one_framework_and_of_several(
    several: Comparison, tmp_path: Path
) -> None:
    alone = records.load(tmp_path / "one", records.make())
    for compared in (alone, several):
        assert comparison.how_to_begin(compared) is None
        for table in TABLES:
            assert not table(compared).empty, table.__name__
    for chart in CHARTS:
        assert records.drawn(chart(alone)).axes
    assert charts.traces(several)[0] == {}  # none of them has a trace


def test_colours_are_one_a_framework() -> None:
    assert len(set(style.COLOURS.values())) == len(style.COLOURS)
    assert set(style.COLOURS) == set(style.MARKERS) == {row.family for row in ROWS}


def test_nodes_are_named_with_their_launcher(tmp_path: Path) -> None:
    several = records.make("Keras", cluster=records.world(virtual=False))
    compared = records.load(tmp_path, records.make(), several)
    devices = machine_tables.machine(compared).frame.loc["devices"].set_index("runs")["value"]
    assert ", 2 by mpiexec 5.0.2 over eth0" in devices["Keras 2 x 1"]
    assert "mpiexec" not in devices["PyTorch"]


def test_what_differs_in_its_numbers_alone_is_one_remark(tmp_path: Path) -> None:
    """Once a run each, which made twenty lines of one reason."""
    for name, used in (("PyTorch", 0.22), ("Keras", 0.89), ("JAX", 0.5)):
        others = {"cores": 2, "used": used, "reason": None}
        records.save(tmp_path, records.make(name, cores=1, other_programs=others))
    said = caveats.remarks(comparison.load(tmp_path)).frame["remark"]
    assert "other programs used 0.22 to 0.89 of 2 cores while" in said["every run"]
