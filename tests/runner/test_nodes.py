"""Runs on several nodes: planned, distinguished, and never ranked where nodes are virtual."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from runner_tools import Suite, images_fixture, suite_fixture

from helpers import paths, record
from helpers.errors import UserError
from helpers.frameworks import cpu_cores, why_not
from helpers.frameworks import devices as device_helpers
from helpers.runner import experiments, plans, ranks

__all__ = ["images_fixture", "suite_fixture"]


def planned(**choices: object) -> list[tuple[str, int, int]]:
    runs = plans.make_plan(recipe="demo", **choices).runs
    return [(run.notebook, run.nodes, run.devices) for run in runs]


def test_each_number_of_nodes_is_a_run_of_its_own() -> None:
    found = planned(notebooks=["PyTorch_MultiGPU"], nnodes=["1", "2"], devices=[1, 2])
    assert found == [("PyTorch_MultiGPU", nodes, each) for nodes in (1, 2) for each in (1, 2)]


def test_what_is_for_several_nodes_runs_only_there_unless_it_is_named(suite: Suite) -> None:
    suite.notebook("PyTorch_MultiGPU")
    suite.notebook("ChainerMN_MultiNode", framework="Chainer")
    one, two = ("ChainerMN_MultiNode", 1, 1), ("ChainerMN_MultiNode", 2, 1)
    plain = ("PyTorch_MultiGPU", 1, 1)
    assert planned(devices=[1]) == [plain]
    assert set(planned(devices=[1], nnodes=[1, 2])) == {plain, ("PyTorch_MultiGPU", 2, 1), two}
    assert planned(devices=[1], notebooks=["ChainerMN_MultiNode"], nnodes=[1, 2]) == [one, two]


def test_a_notebook_of_one_machine_leaves_several_to_its_frameworks_other(suite: Suite) -> None:
    for name in ("PyTorch_MultiGPU", "PyTorch_MultiGPU_Exp_Loss"):
        suite.notebook(name)
    suite.notebook("Keras_MultiGPU", framework="Keras")
    two = {"devices": [1], "nnodes": [2]}
    spans, keras = ("PyTorch_MultiGPU", 2, 1), ("Keras_MultiGPU", 2, 1)
    assert planned(**two) == [spans, keras]  # of Keras there is no other: it says why it cannot
    assert planned(frameworks=["pytorch"], **two) == [spans]
    named = ["PyTorch_MultiGPU_Exp_Loss"]
    assert planned(notebooks=named, **two) == [(named[0], 2, 1)]


def test_the_folder_and_the_title_say_so() -> None:
    run = plans.PlannedRun("PyTorch_MultiGPU", "PyTorch", "pytorch", 2, nodes=3)
    assert run.folder == "PyTorch_MultiGPU-3n-2x"
    assert run.title == "PyTorch_MultiGPU on 3 nodes with 2 devices each"


def test_another_number_of_nodes_or_launcher_is_another_plan(tmp_path: Path) -> None:
    def plan(nodes: int, launcher: str = "auto") -> plans.Plan:
        run = plans.PlannedRun("A_MultiGPU", "A", "tiny", 2, nodes=nodes)
        return plans.Plan(recipe="demo", data="data", runs=[run], launcher=launcher)

    text = json.dumps(asdict(plan(2, "mpiexec:a,b")))
    (tmp_path / experiments.FILE).write_text(text, encoding="utf-8")
    found = experiments.read_plan(tmp_path)
    assert found == plan(2, "mpiexec:a,b")
    assert found not in (plan(2), plan(3, "mpiexec:a,b"))


def test_ranks_find_the_programs_that_a_kernel_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as srun and ssh, by which mpiexec reaches other hosts: a kernel's PATH is a template."""
    told: list[dict[str, str]] = []
    monkeypatch.setattr(ranks, "run", lambda *given, environment, **named: told.append(environment))
    order = ranks.order("PyTorch_MultiGPU", "pytorch", "auto", 2, 1, "cpu")
    source = paths.NOTEBOOKS / "PyTorch_MultiGPU.ipynb"
    ranks.execute(source, tmp_path / "notebook.ipynb", {}, order, kernel="pytorch")
    own = paths.VENVS / "pytorch" / "bin"
    assert told[0]["PATH"] == f"{own}{os.pathsep}{os.environ['PATH']}"


def test_a_notebook_of_one_node_is_skipped_on_two(suite: Suite) -> None:
    """It is not even started, and the record has the reason."""
    suite.notebook("Keras_MultiGPU", "raise SystemExit", framework="Keras")
    assert suite.compare("--nnodes", "2", "--batch-size", "8", "--name", "skips") == 1
    found = record.read(suite.folder / "runs" / "skips" / "Keras_MultiGPU-2n-1x")
    assert (found["state"], found["reason"]) == (
        "skipped",
        why_not("Keras_MultiGPU", 2),
    )


@pytest.mark.parametrize(
    ("devices", "asked", "each"),
    [([1, 2], "auto", 4), ([1, 2], "3", 3), ([1], "auto", 8), ([9], "shared", "shared")],
)
def test_every_number_of_devices_has_equally_many_cores_each(
    devices: list[int], asked: str, each: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So one device of two leaves half of the machine idle."""
    machine = [(number,) for number in range(8)]
    monkeypatch.setattr(cpu_cores, "machine", lambda: machine)
    monkeypatch.setattr(device_helpers, "visible", list)
    plan = plans.make_plan(
        recipe="demo", frameworks=["jax"], devices=devices, cores_per_device=asked
    )
    assert (plan.cores_per_device, plan.cores_here()) == (
        int(asked) if asked == "3" else asked,
        each,
    )


def test_more_devices_than_cores_are_refused_on_one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_cores, "machine", lambda: [(0,)])
    monkeypatch.setattr(device_helpers, "visible", list)
    with pytest.raises(UserError, match=r"give 1 at most\. With cores_per_device 'shared'"):
        plans.make_plan(recipe="demo", frameworks=["jax"], devices=[2])
    plan = plans.make_plan(recipe="demo", frameworks=["jax"], devices=[2], nnodes=[2])
    assert plan.cores_here() == "auto", "of a login node's cores none are known"


def test_cores_of_a_device_are_given_for_several_nodes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another node may have them, where this one has too few."""
    monkeypatch.setattr(cpu_cores, "machine", lambda: [(0,)])
    monkeypatch.setattr(device_helpers, "visible", list)
    chosen: dict[str, Any] = {"recipe": "demo", "frameworks": ["jax"], "nnodes": [2]}
    plan = plans.make_plan(**chosen, devices=[1, 2], cores_per_device="4")
    assert (plan.cores_per_device, plan.cores_here()) == (4, 4)
    with pytest.raises(UserError, match="cores_per_device 0: a device needs"):
        plans.make_plan(**chosen, devices=[1], cores_per_device="0")
