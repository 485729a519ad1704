"""What more devices bring: known laws are found again, planted faults named, gaps left empty."""

import json
import math
from pathlib import Path

import pytest
import records
import scaling_records as law

from helpers.__main__ import main
from helpers.results import comparison, conclusions, learning_curves, report, runs, scaling


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


def test_the_table_has_each_ratio(tmp_path: Path) -> None:
    one, eight = law.make(devices=1), law.make(devices=8)
    eight["synthetic"] = records.rounds(0.5 * law.ALONE * law.speed_up(8))
    eight["training"]["seconds"] /= 2
    compared = comparison.load(law.save(tmp_path / "b", [one, eight]))
    shown = scaling.table(compared).frame.loc["PyTorch"]
    found = [shown[name] for name in ("training time", "images/s", "efficiency")]
    assert found == ["14.04", "7.02", "88 %"]
    assert shown["synthetic efficiency"].startswith("35 % (")


def test_who_never_got_there_has_no_factor(tmp_path: Path) -> None:
    runs = [law.make(devices=1, seed=seed) for seed in (0, 1)]
    runs += [law.make(devices=8, seed=0), law.make(devices=8, seed=1, needed=90)]  # ends at 52 %
    for content in runs:
        content["recipe"]["quality_targets"] = [law.TARGET]
    one = comparison.load(law.save(tmp_path / "b", runs))
    row = scaling.numbers(one).set_index("devices").loc[8]
    assert math.isnan(row["target_speed_up"]) and math.isnan(row["images_factor"])
    assert row["speed_up"] > 1


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


def test_energy_of_some_of_the_gpus_is_none(tmp_path: Path) -> None:
    content = law.make(devices=8, nodes=2)
    gpus = [{"kind": "gpu"}] * 4
    content["monitor"] = {"devices": gpus}
    whole = content | {"monitor": {"devices": gpus * 2}}
    one = comparison.load(law.save(tmp_path / "b", [content, law.make(devices=4)]))
    assert runs.frame(one)["joules"].notna().tolist() == [True, False]
    other = comparison.load(law.save(tmp_path / "c", [whole]))
    assert runs.frame(other)["joules"].notna().all()


def test_json_holds_every_table(batch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(batch), "--json"]) == 0
    told = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert {"runs", "scaling", "epochs"} <= set(told["tables"])
    assert len(told["tables"]["runs"]) == len(law.EPOCHS)
    assert not (batch / report.HTML).exists()
    assert main(["report", str(batch), "--json", "--out", "x"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
