"""What the tests of TensorFlow's and Keras's notebooks with Horovod share.

The ranks are real ones, under ``mpiexec``, and run the notebook's own cells.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import two_nodes
from notebook_cells import failed

TAPE = "tape = hvd.DistributedGradientTape(tape)"


def trained(names: two_nodes.Names) -> two_nodes.Found:
    """On a rank: what it trains."""
    run = names["this_run"]
    slowest = run.framework.slowest(float(run.rank), run.world.devices)
    assert slowest == 1.0 and run.record.content["cluster"]["launcher"] == "mpiexec"
    return two_nodes.trained(run.world, run.work())


def checked(names: two_nodes.Names) -> Any:
    """On a rank: the whole fairness check."""
    run = names["this_run"]
    build, pixels = names["build_model"], names["evaluate_pixels"]
    run.check_fairness(build(run.initial.arrays), build, pixels)
    run.check_training_loop(**vars(run.functions))
    return run.fairness_check


def assert_as_without(notebook: str, folder: Path, limit: float) -> None:
    """Two ranks, on two nodes or on one, train what the notebook without Horovod trains.

    Args:
        limit: of the differences between numbers.
    """
    without = notebook.replace("Horovod", "MultiGPU")
    names = two_nodes.names_of(without, folder / "without", 2)
    (expected,) = names["this_run"].everywhere(two_nodes.trained)
    for nodes, devices in ((2, 1), (1, 2)):
        how = {"nodes": nodes, "devices": devices}
        each = two_nodes.on_ranks(notebook, folder / f"{nodes}", trained, **how)
        assert len(each) == 2
        for rank, found in enumerate(each):
            differ = two_nodes.different(expected, found, limit)
            assert not differ, f"rank {rank} of {nodes} nodes differs by {differ}"


def assert_ranks_part_without_the_tape(
    notebook: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_nodes.plant(notebook, folder, monkeypatch, TAPE, "pass")
    first, second = two_nodes.on_ranks(notebook, folder / "planted", trained)
    name = "weight classifier.weight"
    assert not np.array_equal(first[name], second[name])


def assert_fair(notebook: str, folder: Path) -> None:
    """The whole fairness check, with the training-loop check on two ranks."""
    fairness_check, same = two_nodes.on_ranks(notebook, folder, checked, nodes=1, devices=2)
    assert failed(fairness_check.checks) == failed(same.checks) == set()
    assert "not checked" not in set(fairness_check.table()["verdict"])
