"""What the tests of TensorFlow's and Keras's notebooks with Horovod share.

The ranks are real ones, under ``mpiexec``, and run the notebook's own cells.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import two_nodes
from notebook_cells import CERTIFIED, failed, namespace_of

from helpers.fairness import reference
from helpers.training.world import World

TAPE = "tape = hvd.DistributedGradientTape(tape)"


def slowest(world: World, work: Any) -> float:
    return float(work.framework.slowest(float(world.rank), world.devices))


def assert_as_without(notebook: str, folder: Path, limit: float) -> None:
    """Two ranks, on two nodes or on one, train what the notebook without Horovod trains.

    Args:
        limit: of the differences between numbers.
    """
    without = notebook.replace("Horovod", "MultiGPU")
    with two_nodes.names_of(without, folder / "without", 1, 2) as names:
        (expected,) = names["this_run"].everywhere(two_nodes.trained)
    for nodes, devices in ((2, 1), (1, 2)):
        with two_nodes.names_of(notebook, folder / f"{nodes}", nodes, devices) as names:
            run = names["this_run"]
            for rank, found in enumerate(run.everywhere(two_nodes.trained)):
                differ = two_nodes.different(expected, found, limit)
                assert not differ, f"rank {rank} of {nodes} nodes differs by {differ}"
            assert run.everywhere(slowest) == [1.0, 1.0]
            world = run.record.content["world"]
            assert (world["nodes"], world["launcher"]) == (nodes, "mpiexec")


def assert_ranks_part_without_the_tape(
    notebook: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_nodes.plant(notebook, folder, monkeypatch, TAPE, "pass")
    with two_nodes.names_of(notebook, folder / "planted", 2, 1) as names:
        first, second = names["this_run"].everywhere(two_nodes.trained)
    name = "weight classifier.weight"
    assert not np.array_equal(first[name], second[name])


def assert_certified(notebook: str, folder: Path) -> None:
    """The whole certificate, with the rehearsal on two ranks."""
    names = namespace_of(notebook, folder, devices=2, until=CERTIFIED, workers=2)
    try:
        certificate = names["this_run"].certificate
        assert failed(certificate.checks) == set()
        assert "not checked" not in set(certificate.table()["verdict"])
    finally:
        names["this_run"].nodes.end()


def assert_any_number_of_ranks_gives_the_gradients_of_one(framework: Any) -> None:
    """Three ranks share the four images unevenly."""
    grey, targets = reference.batch()
    pixels = reference.network_input(grey)
    arrays = reference.shallow_arrays()
    devices = framework.list_devices("cpu", 3)
    network = framework.shallow(arrays, devices)
    one_loss, one = framework.gradients(network, pixels, targets, devices[:1])
    for count in (2, 3):
        loss, found = framework.gradients(network, pixels, targets, devices[:count])
        assert loss == pytest.approx(one_loss, rel=1e-6)
        assert found.keys() == one.keys() and one["classifier.weight"].any()
        assert max(np.abs(found[name] - one[name]).max() for name in one) < 1e-6
