"""What more devices bring: known laws are found again, planted faults named, gaps left empty."""

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import records
import scaling_records as law

from helpers.__main__ import main
from helpers.results import (
    charts,
    comparison,
    conclusions,
    learning_curves,
    machine_tables,
    published,
    report,
    runs,
    scaling,
)
from helpers.results.report import data_files


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PyTorch on 1 to 128 GPUs."""
    folder = tmp_path_factory.mktemp("law")
    return law.save(folder / "b", [law.make(devices=count) for count in law.EPOCHS])


@pytest.fixture(scope="module")
def compared(batch: Path) -> comparison.Comparison:
    return comparison.load(batch)


def test_a_known_law_is_found_again_within_1_percent(compared: comparison.Comparison) -> None:
    found = scaling.numbers(compared).set_index("devices")
    assert learning_curves.main_target(compared) == law.TARGET  # 80 % was not reached on 128
    for count in law.EPOCHS:
        ideal = law.speed_up(count)
        assert found.loc[count, "efficiency"] == pytest.approx(ideal / count, rel=0.01)
        assert found.loc[count, "speed_up"] == pytest.approx(ideal, rel=0.01)
        assert found.loc[count, "images_factor"] == pytest.approx(law.penalty(count), rel=0.01)
        won = ideal / law.penalty(count)
        assert found.loc[count, "target_speed_up"] == pytest.approx(won, rel=0.01)
    answer = conclusions.answers(compared)[-1]
    assert answer.question == "More devices"
    assert answer.verdict == "training x 36.16, steady state x 36.16"


def test_who_never_got_there_has_no_factor(tmp_path: Path) -> None:
    runs = [law.make(devices=1, seed=seed) for seed in (0, 1)]
    runs += [law.make(devices=8, seed=0), law.make(devices=8, seed=1, needed=90)]  # ends at 52 %
    for content in runs:
        content["recipe"]["quality_targets"] = [law.TARGET]
    one = comparison.load(law.save(tmp_path / "b", runs))
    row = scaling.numbers(one).set_index("devices").loc[8]
    assert math.isnan(row["target_speed_up"]) and math.isnan(row["images_factor"])
    assert row["speed_up"] > 1
    times = learning_curves.table(one).frame.loc["PyTorch, 8 devices"]
    assert times.iloc[0].endswith("(in 1 of 2 runs)")


def test_repeats_give_ranges(tmp_path: Path) -> None:
    runs = [law.make(devices=n, faster=f) for n in (1, 4) for f in (0.9, 1.0, 1.1)]
    one = comparison.load(law.save(tmp_path / "b", runs))
    row = scaling.numbers(one).set_index("devices").loc[4]
    ideal = law.speed_up(4)
    assert row["speed_up"] == pytest.approx(ideal)
    low, high = 0.9, 1.1  # the medians of the runs
    assert row["speed_up_low"] == pytest.approx(ideal * low / high)
    assert row["efficiency_high"] == pytest.approx(ideal * high / low / 4)


def test_nodes_are_held_against_one_node_and_simulated_ones_scale_nothing(tmp_path: Path) -> None:
    runs = [law.make(devices=1), law.make(devices=4), law.make(devices=8, nodes=2)]
    runs += [law.make("Keras", devices=n) | {"cluster": records.world(2)} for n in (2, 4)]
    one = comparison.load(law.save(tmp_path / "b", runs))
    found = scaling.numbers(one).set_index("label")
    assert set(found["series"]) == {"PyTorch"}
    against = law.speed_up(8) / law.speed_up(4) / 2
    assert found.loc["PyTorch 2 x 4", "node_efficiency"] == pytest.approx(against, rel=0.01)
    assert found.loc["PyTorch 2 x 4", "base"] == 1


@pytest.mark.parametrize(
    ("alone", "first", "shown"),
    [
        ("n1", "n1", ("n1", "n1, n2")),
        ("n2.lab.example", "n1.lab.example", ("n2", "n1, n2")),
        ("n7", "n1", ("n7", "n1, n2")),
    ],
)
def test_the_machines_of_runs_on_one_node_and_on_several_are_named(
    tmp_path: Path, alone: str, first: str, shown: tuple[str, str]
) -> None:
    """By their own names, which Slurm's need not be: with a domain, or others altogether."""
    runs = [law.make(devices=4), law.make(devices=8, nodes=2)]
    runs[0]["run"]["host"], runs[1]["run"]["host"] = alone, first
    for host, name in zip(runs[1]["cluster"]["hosts"], ("n1", "n2"), strict=True):
        host["name"] = name
    compared = comparison.load(law.save(tmp_path / "b", runs))
    hosts = machine_tables.cards(compared).frame["hosts"].iloc[0]
    assert set(hosts.split("; ")) == {alone, first, "n2"}
    note = scaling.table(compared).note
    assert f"Machines of the runs on 1 node: {shown[0]}; 2 nodes: {shown[1]}." in note
    assert ("compares different machines, as n7 had no run on 2 nodes" in note) == (alone == "n7")
    one = comparison.load(law.save(tmp_path / "c", [law.make(devices=1), law.make(devices=4)]))
    assert "Machines" not in scaling.table(one).note


def on_imagenet(content: dict[str, Any], network: str = "resnet50") -> dict[str, Any]:
    content["recipe"] |= {"name": "resnet50-imagenet", "network": network}
    return content


def test_what_chainermn_published_stands_beside_its_own_study_only(tmp_path: Path) -> None:
    runs = [on_imagenet(law.make(devices=count)) for count in (1, 4)]
    one = comparison.load(law.save(tmp_path / "b", runs))
    figure = records.drawn(charts.scaling(one))
    crosses = [line for line in figure.axes[0].lines if line.get_marker() == "x"]
    places = np.array([line.get_xydata()[0] for line in crosses if len(line.get_xydata())])  # type: ignore[index, arg-type]
    assert places == pytest.approx(np.array([[4, 3.52], [128, 101.3248]]))
    assert published.SCALING_NAME in [text.get_text() for text in figure.legends[0].get_texts()]
    about = published.scaling_notes(one)
    assert "88 % on 4 GPUs and 79 % on 128 GPUs" in about[0]
    report.write([tmp_path / "b"])
    assert about[0] in (tmp_path / "b" / "report.md").read_text(encoding="utf-8")
    other = [on_imagenet(law.make(devices=count), "resnet44") for count in (1, 4)]
    assert published.scaling_notes(comparison.load(law.save(tmp_path / "c", other))) == []


def test_energy_of_some_of_the_gpus_is_none(tmp_path: Path) -> None:
    content = law.make(devices=8, nodes=2)
    gpus = [{"kind": "gpu"}] * 4
    content["monitor"] = {"devices": gpus}
    whole = content | {"monitor": {"devices": gpus * 2}}
    one = comparison.load(law.save(tmp_path / "b", [content, law.make(devices=4)]))
    assert runs.frame(one)["joules"].notna().tolist() == [True, False]
    other = comparison.load(law.save(tmp_path / "c", [whole]))
    assert runs.frame(other)["joules"].notna().all()


def test_two_machines_have_a_card_each_and_are_compared(tmp_path: Path) -> None:
    for name, cores, speed_of in (("a", 2, 100.0), ("b", 64, 150.0)):
        content = records.make(gpu=True, speed=speed_of)
        content["run"]["host"] = f"box{name}"
        for epoch, part in zip(content["epochs"], (0.5, 0.98, 1, 1.02, 1), strict=True):
            epoch["images_per_second"] *= part  # the first compiles
        content["hardware"] |= {"cores": cores, "topology": ["GPUs 0-1: NVLink"]}
        records.save(tmp_path / name, content)
    one = comparison.load([tmp_path / "a", tmp_path / "b"])
    assert sorted(entry.label for entry in one.entries) == ["PyTorch on boxa", "PyTorch on boxb"]
    cards = machine_tables.cards(one).frame
    assert cards.loc["boxb", "CPU"] == "A CPU, 64 logical cores"
    assert cards.loc["boxa", "between GPUs"] == "GPUs 0-1: NVLink"
    assert list(machine_tables.against(one).frame.loc["PyTorch, 2 devices"]) == [
        "100 (98.0 to 102)",
        "150 (147 to 153)",
        "1.50 (1.44 to 1.56)",
    ]


def test_the_tidy_table_and_json_hold_every_number(
    batch: Path, compared: comparison.Comparison, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pd.read_parquet(io.BytesIO(data_files.parquet(compared)))
    losses = table[(table["measure"] == "valid_loss") & (table["devices"] == 8)]
    assert list(losses["epoch"]) == list(range(1, law.LAST + 1)) and losses["value"].notna().all()
    reached = table[(table["measure"] == "images_to_target") & (table["devices"] == 8)]
    assert reached.set_index("target")["value"][0.75] == law.EPOCHS[8] * law.IMAGES
    assert main(["report", str(batch), "--json"]) == 0
    told = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert {"runs", "scaling", "epochs"} <= set(told["tables"])
    assert len(told["tables"]["runs"]) == len(law.EPOCHS)
    assert not (batch / report.HTML).exists()
    assert main(["report", str(batch), "--json", "--out", "x"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
