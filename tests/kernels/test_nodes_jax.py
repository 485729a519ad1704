"""JAX over two nodes. ``.venvs/jax/bin/python -m pytest`` with this file."""

import time
from pathlib import Path

import notebook_program
import pytest
import ranks_tools
from nodes_tests import *

from helpers import record
from helpers.training import checkpoint

NOTEBOOK = "JAX_MultiGPU"
LOG = "    run.log(loss, scores, metric(run.valid_split.targets, scores))"
STOPPED = "stopped after an epoch"


def stop_after_an_epoch(folder: str) -> None:
    """On a rank: train until the checkpoint of the first epoch is there."""
    stopping = f'{LOG}\n    raise ValueError("{STOPPED}")'
    run = Path(folder, "nodes")
    how = given(folder, 1) | {"run": str(run)}
    with pytest.raises(ValueError, match=STOPPED):
        notebook_program.names_of(
            NOTEBOOK, Path(folder), until='run.phase("test")', changes={LOG: stopping}, **how
        )
    while not checkpoint.epochs_in(run):
        time.sleep(0.05)


def test_a_run_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    folder = prepare(tmp_path, "jax")
    (folder / "nodes").mkdir()
    cell = f"import test_nodes_jax as t\nt.stop_after_an_epoch({str(folder)!r})"
    ranks_tools.run(folder / "nodes", cell, devices=1, framework="jax")
    on_ranks(NOTEBOOK, folder, "nodes", 2, 1, resume=True)
    train(NOTEBOOK, str(folder), "one", 2)
    assert_the_same(folder, "nodes", "one")
    assert record.read(folder / "nodes")["checkpoint"]["resumed_after"] == 1
