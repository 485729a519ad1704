"""PyTorch's notebook on simulated nodes: its ranks take the steps of one node's processes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ranks_tools
from notebook_cells import write_noise_images
from rank_kills import LAUNCH, NOTEBOOK, unmeasured
from two_nodes import SMALL

from helpers import record
from helpers.fairness import process_checks
from helpers.launch.failures import RankError
from helpers.networks import weights
from helpers.runner.notebook_code import run_cells

ONE_NODE = "PyTorch_MultiGPU_Exp_Loss"


def train(folder: str, devices: int, notebook: str = NOTEBOOK) -> dict[str, Any]:
    """The notebook's names once it has trained, here or on a rank."""
    given: dict[str, Any] = {"data": f"{folder}/noise", "recipe": f"{folder}/small.toml"}
    given |= {"devices": devices}
    how: dict[str, Any] = {
        "epochs": 2,
        "batch_size": 8,
        "num_workers": 1,
        "run": f"{folder}/run-{devices}",
    }
    return run_cells(notebook, after=LAUNCH, changed=unmeasured, **given, **how)


def on_two_nodes(folder: Path, notebook: str) -> None:
    (run := folder / "run-1").mkdir()
    cell = f"import test_nodes_pytorch as t\nt.train({str(folder)!r}, 1, {notebook!r})"
    ranks_tools.run(run, cell, devices=1, framework="pytorch")


@pytest.fixture(name="folder")
def folder_fixture(tmp_path: Path) -> Path:
    write_noise_images(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL)
    return tmp_path


def test_two_nodes_take_the_steps_of_one(folder: Path) -> None:
    on_two_nodes(folder, NOTEBOOK)
    train(str(folder), 2)
    found, one = (record.read(folder / f"run-{devices}") for devices in (1, 2))
    for ours, theirs in zip(found["epochs"], one["epochs"], strict=True):
        for figure in ("train_loss", "valid_loss", "learning_rate"):
            assert ours[figure] == theirs[figure]
    each, expected = (
        weights.load(folder / f"run-{devices}" / "weights.safetensors") for devices in (1, 2)
    )
    assert all(np.array_equal(each[name], array) for name, array in expected.items())
    assert found["cluster"]["nodes"] == 2 and "cluster" not in one
    assert found["devices"]["count"] == 2
    rows = {row["check"]: row for row in found["fairness"]["checks"]}
    assert not [name for name, row in rows.items() if row["verdict"] == "fail"]
    assert rows[process_checks.JOINED]["reason"] == "2 processes, 2 devices, 1 host"
    assert rows["gradients, n devices / one"]["verdict"] == "pass"


MEET = """
from datetime import timedelta
import torch.distributed as dist
import ranks_tools as tools
how = {"init_method": "env://", "timeout": timedelta(seconds=10)}
dist.init_process_group("gloo", rank=tools.here().rank, world_size=2, **how)
tools.keep(dist.get_world_size())
dist.destroy_process_group()
"""


@pytest.mark.parametrize("launcher", ranks_tools.LAUNCHERS)
def test_a_process_group_meets_under_each_launcher(
    launcher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torchrun has a store of its own, and whoever started us by torchrun has left word of it."""
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    assert ranks_tools.run(tmp_path, MEET, launcher=launcher) == [2, 2]


def test_a_notebook_of_one_node_says_so(folder: Path) -> None:
    with pytest.raises(RankError, match=r"^nodes 2: DataParallel is one process"):
        on_two_nodes(folder, ONE_NODE)
    assert not (folder / "run-1" / "record.json").exists()


def test_the_cells_have_no_nodes(folder: Path) -> None:
    """Elsewhere than under a launcher a notebook is one machine's."""
    given: dict[str, Any] = {"data": str(folder / "noise"), "run": str(folder / "run")}
    run = run_cells(NOTEBOOK, until="def augment(", recipe="demo", devices=2, **given)["run"]
    assert run.setup.nodes == 1 and run.rank == 0 and "cluster" not in run.record.content
