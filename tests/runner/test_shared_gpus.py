"""Replicas that share GPUs rank nothing, wherever times stand, and are nobody else's repeats."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import records
from runner_tools import Suite, images_fixture, suite_fixture

from helpers import record
from helpers.__main__ import main
from helpers.errors import UserError
from helpers.frameworks.devices import Devices
from helpers.results import (
    caveats,
    charts,
    comparison,
    comparison_tables,
    conclusions,
    learning_curves,
    machine_tables,
    ranking,
    regression,
    repeated_runs,
    report,
    scaling,
    shared_settings,
)
from helpers.results.comparison import Comparison
from helpers.runner import experiments, journal, messages, plans
from helpers.runner.estimate import History

__all__ = ["images_fixture", "suite_fixture"]

SHARED = "PyTorch sharing 1 GPU"


@pytest.fixture
def shared(tmp_path: Path) -> Comparison:
    """Two frameworks, four replicas each, on one GPU: Keras would be the quickest."""
    records.save(tmp_path, records.make("PyTorch", 4, speed=50, shared_gpus=1))
    records.save(tmp_path, records.make("Keras", 4, speed=500, shared_gpus=1))
    return comparison.load(tmp_path)


@pytest.fixture
def mixed(tmp_path: Path) -> Comparison:
    """PyTorch on 1 and 2 GPUs, and quicker than either on 2 replicas of 1 GPU."""
    for count, speed in ((1, 50), (2, 90)):
        records.save(tmp_path, records.make("PyTorch", count, speed=speed, gpu=True))
    records.save(tmp_path, records.make("PyTorch", 2, speed=500, shared_gpus=1))
    records.save(tmp_path, records.make("Keras", 4, speed=900, shared_gpus=2))
    return comparison.load(tmp_path)


def test_the_record_says_how_many_gpus_are_shared(tmp_path: Path) -> None:
    names = ("NVIDIA H100",) * 4
    for devices, expected in ((Devices("gpu", names, 1), 1), (Devices("gpu", names), None)):
        run = records.started(tmp_path / str(expected), devices)
        found = record.read(run.folder)["devices"]
        assert found["count"] == 4 and found.get("shared_gpus") == expected
        run.fail(RuntimeError("enough is known"))


def test_they_are_not_ranked(shared: Comparison) -> None:
    first, line = conclusions.fastest(shared), conclusions.headline(shared)
    assert first.verdict == conclusions.UNRANKED
    assert first.text.startswith("Replicas that share a GPU take turns on it")
    same = "2 frameworks trained the same network on 1 NVIDIA H100 shared by 4 replicas"
    assert line.startswith(same) and "speed is not ranked here" in line
    assert list(learning_curves.table(shared).frame.index) == [
        entry.run for entry in shared.entries
    ]
    folder = shared.folders[0]
    page = report.write(folder).read_text()
    for text in (line, page, (folder / report.MARKDOWN).read_text()):
        assert not re.search(r"fastest on|times as fast|quickest|speed-up \d", text)
    assert page.count("take turns on it") == 1  # in the answer; a limit is stated once
    assert '"ranks": false' in page and '"ranks": true' not in page


def test_they_scale_nothing(tmp_path: Path) -> None:
    for count in (2, 4):
        made = records.make("PyTorch", count, speed=50 * count, shared_gpus=1)
        records.save(tmp_path, made)
    compared = comparison.load(tmp_path)
    assert scaling.speed.numbers(compared).empty and not scaling.speed.several(compared)
    assert scaling.speed.table(compared).empty and charts.scaling(compared) is None


def test_every_table_says_what_they_are(shared: Comparison) -> None:
    assert list(comparison_tables.runs(shared).frame.index) == [
        f"{SHARED}, 4 devices",
        "Keras sharing 1 GPU, 4 devices",
    ]
    machine = machine_tables.hardware(shared).frame
    assert "4 replicas on 1 x NVIDIA H100" in machine.to_string()
    said = caveats.remarks(shared).frame
    (line,) = [text for text in said["remark"] if "take turns" in text]
    assert line.startswith("4 replicas on 1 GPU take turns, so the speed-up is meaningless")
    assert list(said.index[said["remark"] == line]) == ["every run"]
    assert shared_settings.differences(shared.finished) == []


def test_they_are_no_repeats_of_runs_with_a_gpu_each(mixed: Comparison) -> None:
    numbers = repeated_runs.summarise(mixed)
    assert list(numbers["runs"]) == [1, 1, 1, 1]
    kinds = dict(zip(numbers["label"], numbers["kind"], strict=True))
    assert kinds == {"PyTorch": "gpu", SHARED: "shared", "Keras sharing 2 GPUs": "shared"}


def test_beside_runs_with_a_gpu_each_they_are_not_in_the_race(mixed: Comparison) -> None:
    assert ranking.unranked(mixed) is None
    first = conclusions.fastest(mixed)
    assert first.verdict == "PyTorch" and "sharing" not in first.text
    assert "on 2 devices" in first.text
    assert conclusions.headline(mixed).startswith("On 2 NVIDIA H100, PyTorch trains fastest;")
    assert set(scaling.speed.numbers(mixed)["label"]) == {"PyTorch"}
    order = list(learning_curves.table(mixed).frame.index)
    assert order[:2] == ["PyTorch, 2 devices", "PyTorch, 1 device"]
    for draw in (charts.throughput, charts.placed, charts.curves):
        assert draw(mixed) is not None


def test_times_are_compared_with_the_same_sharing_only(tmp_path: Path) -> None:
    """A run with a GPU each is no older state of one that shares."""
    old, new, alone = tmp_path / "old", tmp_path / "new", tmp_path / "alone"
    records.save(old, records.make("PyTorch", 4, speed=100, shared_gpus=1))
    records.save(new, records.make("PyTorch", 4, speed=50, shared_gpus=1))
    records.save(alone, records.make("PyTorch", 4, speed=100, gpu=True))
    found = regression.compare(comparison.load(old), comparison.load(new))
    assert set(found["run"]) == {f"{SHARED}, 4 devices"}
    assert "worse" in set(found["verdict"])
    for first, second in ((old, alone), (alone, old)):
        with pytest.raises(UserError, match="have no run in common"):
            regression.compare(comparison.load(first), comparison.load(second))


def test_estimates_are_of_the_same_sharing(tmp_path: Path, suite: Suite) -> None:
    state = plans.RunState("PyTorch_MultiGPU", "PyTorch", "tiny", 2, "0" * 64)

    def finished(name: str, seconds: float, shared_gpus: int | None) -> None:
        """A batch of one run on this machine."""
        whole = json.loads((suite.folder / "made.json").read_text())
        made = records.make(devices=2, gpu=True, shared_gpus=shared_gpus, run=whole["run"])
        made["data"]["folder"] = str(suite.data)
        folder = suite.folder / "runs" / name
        records.save(folder, made)
        run = replace(state, state="finished", seconds=seconds, gpus=shared_gpus)
        plan = plans.Plan("demo", str(suite.data), [run])
        journal.write(folder, plan, {"started": "now", "finished": "now"})

    finished("alone", 10.0, None)
    finished("shared", 40.0, 1)
    history = History(plans.Plan("demo", str(suite.data), [state]))
    with pytest.MonkeyPatch.context() as patch:
        gpus = [Devices("gpu", ("NVIDIA H100",) * 2), Devices("gpu", ("NVIDIA H100",) * 2, 1)]
        patch.setattr("helpers.frameworks.devices.resolve", lambda count, on, cores: gpus[on == 1])
        alone = history.of(state)
        state.gpus = 1
        shared = history.of(state)
    assert alone is not None and (alone.runs, alone.seconds) == (1, 10.0)
    assert shared is not None and (shared.runs, shared.seconds) == (1, 40.0)


def test_the_last_table_and_the_folder_say_so(tmp_path: Path) -> None:
    state = plans.RunState("Keras_MultiGPU", "Keras", "tensorflow", 4, "", gpus=1)
    assert state.title == "Keras_MultiGPU, 4 replicas on 1 GPU"
    assert state.folder == "Keras_MultiGPU-4x-1gpu"
    batch = experiments.Experiment(tmp_path, plans.Plan("auto", "auto", [state]), "")
    assert re.search(r"^Keras_MultiGPU +4 on 1 GPU +waiting", messages.final_table(batch), re.M)
    state.gpus = 4
    assert (state.on, state.folder) == ("4", "Keras_MultiGPU-4x")


def test_a_batch_that_shares_is_gone_on_with_as_it_was_begun(tmp_path: Path) -> None:
    def plan(gpus: int | None) -> plans.Plan:
        run = plans.RunState("A_MultiGPU", "A", "tiny", 2, "", gpus=gpus)
        return plans.Plan("demo", "data", [run])

    journal.write(tmp_path, plan(0), {"started": "now", "finished": None})
    found, _ = journal.read(tmp_path)
    assert found.runs[0].gpus == 0
    assert found.asks_for_the_same(plan(0))
    assert not any(found.asks_for_the_same(plan(gpus)) for gpus in (None, 1, 2))


def test_a_sweep_and_the_command_ask_for_the_same(
    suite: Suite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite.notebook("PyTorch_MultiGPU")
    file = tmp_path / "sweep.toml"
    file.write_text("devices = [2, 4]\ngpus = 0\nrecipe = 'demo'\n", encoding="utf-8")
    assert main(["run", "--sweep", str(file), "--data", str(suite.data), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "PyTorch_MultiGPU on 2 CPU devices, environment tiny" in shown
    assert main(["run", "--sweep", str(file), "--gpus", "3", "--dry-run"]) == 2
    said = "gpus 3: this process sees no GPU; leave gpus out\n"
    assert capsys.readouterr().err == f"error: {said}"
    file.write_text("devices = [2, 4]\ngpus = 3\n", encoding="utf-8")
    assert main(["run", "--sweep", str(file), "--dry-run"]) == 2
    assert capsys.readouterr().err == f"error: {file}, line 2: {said}"
    file.write_text("gpus = [1, 2]\n", encoding="utf-8")
    assert main(["run", "--sweep", str(file), "--dry-run"]) == 2
    assert "line 1: 'gpus' is [1, 2]: give one value, such as 1" in capsys.readouterr().err
