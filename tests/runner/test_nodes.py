"""Runs on several nodes: planned, distinguished, and never ranked where nodes are virtual."""

import os
from pathlib import Path
from typing import Any

import pytest
from runner_tools import Suite

from helpers import paths, record
from helpers.errors import UserError
from helpers.frameworks import cpu_cores, why_not
from helpers.frameworks import devices as device_helpers
from helpers.runner import plans, ranks


def planned(**choices: object) -> list[tuple[str, int, int]]:
    runs = plans.make_plan(recipe="demo", **choices).runs
    return [(run.notebook, run.nodes, run.devices) for run in runs]


def test_what_is_for_several_nodes_runs_only_there_unless_it_is_named(suite: Suite) -> None:
    suite.notebook("PyTorch_MultiGPU")
    suite.notebook("ChainerMN_MultiNode", framework="Chainer")
    one, two = ("ChainerMN_MultiNode", 1, 1), ("ChainerMN_MultiNode", 2, 1)
    plain = ("PyTorch_MultiGPU", 1, 1)
    assert planned(devices=[1]) == [plain]
    assert set(planned(devices=[1], nnodes=[1, 2])) == {plain, ("PyTorch_MultiGPU", 2, 1), two}
    assert planned(devices=[1], notebooks=["ChainerMN_MultiNode"], nnodes=[1, 2]) == [one, two]


def test_a_notebook_of_one_machine_leaves_several_to_its_frameworks_other(suite: Suite) -> None:
    for name in ("PyTorch_MultiGPU", "PyTorch_MultiGPU_DataParallel"):
        suite.notebook(name)
    suite.notebook("Keras_MultiGPU", framework="Keras")
    two = {"devices": [1], "nnodes": [2]}
    spans, keras = ("PyTorch_MultiGPU", 2, 1), ("Keras_MultiGPU", 2, 1)
    assert planned(**two) == [spans, keras]  # of Keras there is no other: it says why it cannot
    assert planned(frameworks=["pytorch"], **two) == [spans]
    named = ["PyTorch_MultiGPU_DataParallel"]
    assert planned(notebooks=named, **two) == [(named[0], 2, 1)]


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


def test_a_copy_of_any_name_has_the_ranks_of_its_original(suite: Suite) -> None:
    shipped = paths.ROOT / "notebooks" / "ChainerMN_MultiNode.ipynb"
    (paths.NOTEBOOKS / "mine.ipynb").write_text(shipped.read_text("utf-8"), "utf-8")
    order = ranks.order("mine", "chainer", "auto", 1, 2, "cpu")
    assert order is not None and (order.ranks, order.framework) == (2, "chainermn")


def test_a_notebook_of_one_node_is_skipped_on_two(suite: Suite) -> None:
    """It is not even started, and the record has the reason."""
    suite.notebook("Keras_MultiGPU", "raise SystemExit", framework="Keras")
    assert suite.compare("--nnodes", "2", "--batch-size", "8", "--name", "skips") == 1
    found = record.read(suite.folder / "runs" / "skips" / "Keras_MultiGPU-2n-1x")
    assert (found["state"], found["reason"]) == ("skipped", why_not("Keras_MultiGPU", 2))


def plan_on(cores: int, patch: pytest.MonkeyPatch, devices: list[int], **how: Any) -> plans.Plan:
    """A plan for JAX, made on a machine with so many cores and without GPUs."""
    patch.setattr(cpu_cores, "machine", lambda: [(number,) for number in range(cores)])
    patch.setattr(device_helpers, "visible", list)
    return plans.make_plan(recipe="demo", frameworks=["jax"], devices=devices, **how)


@pytest.mark.parametrize(
    ("devices", "asked", "each"),
    [([1, 2], "auto", 4), ([1, 2], "3", 3), ([1], "auto", 8), ([9], "shared", "shared")],
)
def test_every_number_of_devices_has_equally_many_cores_each(
    devices: list[int], asked: str, each: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So one device of two leaves half of the machine idle."""
    plan = plan_on(8, monkeypatch, devices, cores_per_device=asked)
    assert (plan.cores_per_device, plan.cores_here()) == (3 if asked == "3" else asked, each)


def test_more_devices_than_cores_are_refused_on_one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another node may have them."""
    with pytest.raises(UserError, match=r"give 1 at most\. With cores_per_device 'shared'"):
        plan_on(1, monkeypatch, [2])
    plan = plan_on(1, monkeypatch, [2], nnodes=[2])
    assert plan.cores_here() == "auto", "of a login node's cores none are known"
    plan = plan_on(1, monkeypatch, [1, 2], nnodes=[2], cores_per_device="4")
    assert (plan.cores_per_device, plan.cores_here()) == (4, 4)
    with pytest.raises(UserError, match="cores_per_device 0: must be 1 or more"):
        plan_on(1, monkeypatch, [1], nnodes=[2], cores_per_device="0")
