"""JAX over two nodes. ``.venvs/jax/bin/python -m pytest`` with this file."""

from pathlib import Path
from threading import Timer
from typing import Any

import notebook_program
import numpy as np
import own_networks
import pytest
import ranks_tools
import two_nodes
from resuming import write_small_images

from helpers import record
from helpers.fairness import process_checks
from helpers.launch.failures import RankError
from helpers.networks import weights
from helpers.training import checkpoint

NOTEBOOK = "JAX_MultiGPU"
LOG = "    run.log(loss, scores, metric(run.valid_part.targets, scores))"
STOPPED = "stopped after an epoch"


def given(folder: str, devices: int) -> dict[str, Any]:
    how = {"data": f"{folder}/data", "recipe": f"{folder}/recipe/mine.toml", "epochs": 2}
    return how | {"devices": devices, "num_workers": 1, "run": f"{folder}/run-{devices}"}


def train(folder: str, devices: int, **more: Any) -> None:
    """To its test, here or on a rank; nothing is measured."""
    how = given(folder, devices) | more
    notebook_program.train(NOTEBOOK, Path(how.pop("run")), **how)


def stop_after_an_epoch(folder: str) -> None:
    """On a rank: train until the checkpoint of the first epoch is there."""
    stopping = f'{LOG}\n    raise ValueError("{STOPPED}")'
    how = given(folder, 1)
    with pytest.raises(ValueError, match=STOPPED):
        notebook_program.names_of(
            NOTEBOOK, Path(folder), until='run.phase("test")', changes={LOG: stopping}, **how
        )
    checkpoint.await_epoch(Path(how["run"]), 1)


def talk_until_killed(folder: str, rank: int) -> None:
    """On a rank: talk to the others for ever; after two seconds that rank kills itself."""
    names = notebook_program.names_of(NOTEBOOK, Path(folder), **given(folder, 1))
    run = names["run"]
    if run.rank == rank:
        Timer(2, two_nodes.kill, [two_nodes.itself]).start()
    while True:
        run.framework.slowest(0.0, run.own_devices)


def on_two_nodes(folder: Path, call: str) -> None:
    (folder / "run-1").mkdir(exist_ok=True)
    cell = f"import test_nodes_jax as t\nt.{call}"
    ranks_tools.run(folder / "run-1", cell, devices=1, framework="jax")


@pytest.fixture(name="folder")
def folder_fixture(tmp_path: Path) -> Path:
    """Images, and a custom network without random numbers, which never repeat."""
    write_small_images(tmp_path / "data")
    code = own_networks.NETS["jax"].replace("Dropout(0.1", "Dropout(0.0")
    own_networks.recipe_of(tmp_path / "recipe", "jax", code)
    return tmp_path


def assert_same_training(folder: Path) -> None:
    """Two nodes with a device each took the steps of one process with two."""
    found, one = (record.read(folder / f"run-{devices}") for devices in (1, 2))
    for ours, theirs in zip(found["epochs"], one["epochs"], strict=True):
        for figure in ("train_loss", "valid_loss", "learning_rate"):
            assert ours[figure] == pytest.approx(theirs[figure], rel=1e-6), figure
    each, expected = (
        weights.load(folder / f"run-{devices}" / "weights.safetensors") for devices in (1, 2)
    )
    for name, array in expected.items():
        np.testing.assert_allclose(each[name], array, rtol=1e-5, atol=1e-7, err_msg=name)


def test_two_nodes_take_the_steps_of_one(folder: Path) -> None:
    train(str(folder), 2)
    on_two_nodes(folder, f"train({str(folder)!r}, 1)")
    assert_same_training(folder)
    content = record.read(folder / "run-1")
    assert content["cluster"]["nodes"] == 2 and content["devices"]["count"] == 2
    rows = {row["check"]: row for row in content["fairness"]["checks"]}
    assert not [name for name, row in rows.items() if row["verdict"] == "fail"]
    assert rows[process_checks.JOINED]["reason"] == "2 processes, 2 devices, 1 host"
    for name in ("gradients, n devices / one", "evaluation pixels", process_checks.EVALUATED):
        assert rows[name]["verdict"] == "pass"


def test_a_run_that_was_interrupted_goes_on(folder: Path) -> None:
    train(str(folder), 2, checked=False)
    on_two_nodes(folder, f"stop_after_an_epoch({str(folder)!r})")
    on_two_nodes(folder, f"train({str(folder)!r}, 1, checked=False, resume=True)")
    assert_same_training(folder)
    assert record.read(folder / "run-1")["checkpoint"]["resumed_after"] == 1


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_dies_ends_all(folder: Path, rank: int) -> None:
    """Rank 0 has the service by which JAX's processes would hear of each other's end."""
    with pytest.raises(RankError, match=rf"^rank {rank} on .*killed \(signal 9"):
        on_two_nodes(folder, f"talk_until_killed({str(folder)!r}, {rank})")
    assert ranks_tools.nothing_is_left(folder, 1)
