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
)
from helpers.results.report import data_files
from helpers.results.scaling import resources, speed, speedup_factors


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PyTorch on 1 to 128 GPUs."""
    folder = tmp_path_factory.mktemp("law")
    return law.save(folder / "b", [law.make(devices=count) for count in law.EPOCHS])


@pytest.fixture(scope="module")
def compared(batch: Path) -> comparison.Comparison:
    return comparison.load(batch)


def test_a_known_law_is_found_again_within_1_percent(compared: comparison.Comparison) -> None:
    found = speed.numbers(compared).set_index("devices")
    factors = speedup_factors.numbers(compared, law.TARGET).set_index("devices")
    for count in law.EPOCHS:
        ideal = law.speed_up(count)
        assert found.loc[count, "efficiency"] == pytest.approx(ideal / count, rel=0.01)
        assert found.loc[count, "speed_up"] == pytest.approx(ideal, rel=0.01)
        assert factors.loc[count, "hardware_efficiency"] == pytest.approx(ideal, rel=0.01)
        assert factors.loc[count, "statistical_efficiency"] == pytest.approx(
            law.penalty(count), rel=0.01
        )
        won = ideal / law.penalty(count)
        assert factors.loc[count, "speed_up"] == pytest.approx(won, rel=0.01)


def test_the_sentence_says_both_factors(compared: comparison.Comparison) -> None:
    assert speedup_factors.target(compared) == law.TARGET  # 80 % was not reached on 128
    said = speedup_factors.sentences(compared)
    assert said[2] == (
        "PyTorch was 3.05 times as fast to reach top-1 75 % on 8 devices as on 1 (one run each). "
        "It trained 7.02 times as many images/s and needed 2.30 times as many images, compiling "
        "and validation included."
    )
    failed = "PyTorch did not reach top-1 80 % on 128 devices with 2,031,616 images (best 77.5 %)."
    assert said[-1].startswith(failed)
    assert "It trained 36.2 times as many images/s as on 1, compiling and" in said[-1]
    answer = conclusions.answers(compared)[-1]
    assert (
        answer.question == "More devices"
        and answer.verdict == "training x 36.16, steady state x 36.16"
    )
    assert "6.03 times as fast to reach top-1 75 %" in answer.text


def test_who_never_got_there_has_no_factor(tmp_path: Path) -> None:
    runs = [law.make(devices=1, seed=seed) for seed in (0, 1)]
    runs += [law.make(devices=8, seed=0), law.make(devices=8, seed=1, needed=90)]  # ends at 52 %
    one = comparison.load(law.save(tmp_path / "b", runs))
    row = speedup_factors.numbers(one, 0.75).set_index("devices").loc[8]
    assert math.isnan(row["speed_up"]) and (row["reached"], row["runs"]) == (1, 2)
    assert (
        speedup_factors.numbers(one, 0.5).set_index("devices").loc[8, "statistical_efficiency"] > 2
    )
    assert "not reached by 1 of 2 runs" in speedup_factors.table(one).frame.to_string()
    assert any(
        "did not reach top-1 60 % on 8 devices in 1 of 2 runs" in said
        for said in speedup_factors.sentences(one)
    )
    times = learning_curves.targets_table(one).frame.loc["PyTorch, 8 devices"]
    (time,) = (text for head, text in times["top-1 75 %"].items() if head.startswith("time"))
    assert time.endswith("(in 1 of 2 runs)")


def test_repeats_give_ranges(tmp_path: Path) -> None:
    runs = [law.make(devices=n, faster=f) for n in (1, 4) for f in (0.9, 1.0, 1.1)]
    one = comparison.load(law.save(tmp_path / "b", runs))
    row = speed.numbers(one).set_index("devices").loc[4]
    ideal = law.speed_up(4)
    assert row["speed_up"] == pytest.approx(ideal)
    low, high = 0.9, 1.1  # the medians of the runs
    assert row["speed_up_low"] == pytest.approx(ideal * low / high)
    assert row["efficiency_high"] == pytest.approx(ideal * high / low / 4)
    way = speedup_factors.numbers(one).set_index("devices").loc[4]
    assert way["hardware_efficiency_low"] == pytest.approx(ideal * 0.9 / 1.1)
    assert way["hardware_efficiency"] / way["statistical_efficiency"] == pytest.approx(
        way["speed_up"]
    )


def test_runs_are_held_against_those_of_their_own_seed(tmp_path: Path) -> None:
    """Seeds differ far more than the devices: of all pairs, 4 devices may look the worse."""
    needed = {0: 10, 1: 20, 2: 30}
    runs = [law.make(devices=1, seed=seed, needed=epochs) for seed, epochs in needed.items()]
    runs += [law.make(devices=4, seed=seed, needed=epochs + 1) for seed, epochs in needed.items()]
    one = comparison.load(law.save(tmp_path / "b", runs[::-1]))
    way = speedup_factors.numbers(one, law.TARGET).set_index("devices").loc[4]
    assert way["by_seed"]
    assert way["statistical_efficiency_low"] == pytest.approx(31 / 30)
    assert way["statistical_efficiency_high"] == pytest.approx(11 / 10)
    assert way["statistical_efficiency"] == pytest.approx(
        (11 * 21 * 31 / (10 * 20 * 30)) ** (1 / 3)
    )
    assert "over the seeds)." in speedup_factors.sentences(one)[0]
    other = comparison.load(law.save(tmp_path / "c", runs[:-1]))  # a seed less on 4 devices
    apart = speedup_factors.numbers(other, law.TARGET).set_index("devices").loc[4]
    assert not apart["by_seed"] and apart["statistical_efficiency_low"] == pytest.approx(11 / 30)


def test_nodes_are_held_against_one_node_and_simulated_ones_scale_nothing(tmp_path: Path) -> None:
    runs = [law.make(devices=1), law.make(devices=4), law.make(devices=8, nodes=2)]
    runs += [law.make("Keras", devices=n) | {"cluster": records.world(2)} for n in (2, 4)]
    one = comparison.load(law.save(tmp_path / "b", runs))
    found = speed.numbers(one).set_index("label")
    assert set(found["series"]) == {"PyTorch"}
    against = law.speed_up(8) / law.speed_up(4) / 2
    assert found.loc["PyTorch 2 x 4", "node_efficiency"] == pytest.approx(against, rel=0.01)
    assert found.loc["PyTorch 2 x 4", "base"] == 1
    found = speedup_factors.numbers(one)
    assert set(found["kind"]) == {"gpu", "simulated"}  # images needed are told of both


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
    hosts = machine_tables.cards(compared).frame.loc["hosts"].iloc[0]
    assert set(hosts.split("; ")) == {alone, first, "n2"}
    note = speed.table(compared).note
    assert f"Machines of the runs on 1 node: {shown[0]}; 2 nodes: {shown[1]}." in note
    assert ("compares different machines, as n7 had no run on 2 nodes" in note) == (alone == "n7")
    one = comparison.load(law.save(tmp_path / "c", [law.make(devices=1), law.make(devices=4)]))
    assert "Machines" not in speed.table(one).note


def on_imagenet(content: dict[str, Any], network: str = "resnet50") -> dict[str, Any]:
    content["recipe"] |= {"name": "resnet50-imagenet", "network": network}
    return content


def test_what_chainermn_published_stands_beside_its_own_study_only(tmp_path: Path) -> None:
    runs = [on_imagenet(law.make(devices=count)) for count in (1, 4)]
    one = comparison.load(law.save(tmp_path / "b", runs))
    figure = records.drawn(charts.scaling(one))
    right = figure.axes[1]
    crosses = [
        np.asarray(line.get_xydata()).tolist() for line in right.lines if line.get_marker() == "x"
    ]
    assert crosses == [[[4.0, 88.0]], [[128.0, 79.16]]]
    assert published.SCALING_NAME in [text.get_text() for text in figure.legends[0].get_texts()]
    about = published.scaling_notes(one)
    assert "88 % on 4 GPUs and 79 % on 128 GPUs" in about[0]
    report.write([tmp_path / "b"])
    assert about[0] in (tmp_path / "b" / "report.md").read_text(encoding="utf-8")
    other = [on_imagenet(law.make(devices=count), "resnet44") for count in (1, 4)]
    assert published.scaling_notes(comparison.load(law.save(tmp_path / "c", other))) == []


def test_costs_are_those_of_the_records_or_empty(compared: comparison.Comparison) -> None:
    found = resources.numbers(compared).set_index("devices")
    seconds = law.EPOCHS[8] * law.IMAGES / (law.ALONE * law.speed_up(8))
    assert found.loc[8, "wh_to_target"] == pytest.approx(300 * 8 * seconds / 3600)
    assert found["peak_bytes"].isna().all()  # these records tell none
    assert "peak memory" not in str(resources.table(compared))


def test_energy_of_some_of_the_gpus_is_none(tmp_path: Path) -> None:
    content = law.make(devices=8, nodes=2)
    gpus = [{"kind": "gpu"}] * 4
    content["monitor"] = {"devices": gpus}
    whole = content | {"monitor": {"devices": gpus * 2}}
    one = comparison.load(law.save(tmp_path / "b", [content, law.make(devices=4)]))
    assert resources.numbers(one)["wh_an_epoch"].notna().tolist() == [True, False]
    other = comparison.load(law.save(tmp_path / "c", [whole]))
    assert resources.numbers(other)["wh_an_epoch"].notna().all()


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
    assert cards.loc["CPU", "boxb"] == "A CPU, 64 logical cores"
    assert cards.loc["between GPUs", "boxa"] == "GPUs 0-1: NVLink"
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
    assert {"runs", "split", "scaling", "resources", "epochs"} <= set(told["tables"])
    assert len(told["tables"]["runs"]) == len(law.EPOCHS)
    assert not (batch / report.HTML).exists()
    assert main(["report", str(batch), "--json", "--out", "x"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
