"""Runs in the chainer environment: ``.venvs/chainer/bin/python -m pytest`` with this file.

The ranks are real ones, under ``mpiexec``, and run the notebook's own cells.
"""

from pathlib import Path
from typing import Any

import chainermn_ranks as on_ranks
import numpy as np
import pytest
import ranks_tools
import shared_batches
from nodes_tests import test_a_rank_that_dies_ends_all as test_a_rank_that_dies_ends_all
from notebook_program import fairness_check, in_each

from helpers.fairness import custom_network, process_checks
from helpers.frameworks import chainermn as framework

NOTEBOOK = on_ranks.NOTEBOOK


def test_on_ranks(tmp_path: Path) -> None:
    """All that is marked so."""
    ranks_tools.run_tests(tmp_path, __file__, framework="chainermn")


@pytest.fixture(scope="module", name="names")
def names_fixture() -> dict[str, Any]:
    """On two simulated nodes, of which this process is a rank."""
    return on_ranks.names_of(ranks_tools.folder())


@pytest.mark.on_ranks
def test_the_fairness_check_is_passed(names: dict[str, Any]) -> None:
    found = fairness_check(names)
    if ranks_tools.here().rank:
        return  # rank 0 has the rows of all
    assert found.comparable
    verdicts = {check.check: check.verdict for check in found.checks}
    assert set(verdicts.values()) == {"pass", "not checked"}
    unknown = {name for name, verdict in verdicts.items() if verdict == "not checked"}
    assert unknown == set(custom_network.UNKNOWN)
    reasons = {check.check: check.reason for check in found.checks}
    assert reasons["which replica's running statistics are kept"] == "the average of all replicas'"
    assert reasons[process_checks.JOINED] == "2 processes, 2 devices, 1 host"


@pytest.mark.on_ranks
def test_each_rank_has_its_block_of_the_global_batches_of_the_rule(names: dict[str, Any]) -> None:
    """For any number of workers, and after a resume."""
    run, expected = names["run"], {}
    for workers, epochs in ((0, [0, 1, 2]), (1, [2]), (3, [1, 2])):
        run.workers = workers
        found = shared_batches.trained_on(names, run.train_split, epochs)
        for epoch, batches in zip(epochs, found, strict=True):
            if epoch not in expected:
                expected[epoch] = shared_batches.by_the_rule(
                    run, run.train_split, run.train_split.read, epoch, run.rank, 2
                )
            assert len(batches) == run.recipe.steps
            shared_batches.assert_same(batches, expected[epoch])


@pytest.mark.on_ranks
def test_two_ranks_train_over_a_grid_as_by_naive(names: dict[str, Any], tmp_path: Path) -> None:
    """Two summands have one order only: the same bits."""
    grid = on_ranks.names_of(tmp_path, all_reduce="rsap 1x2")
    assert grid["communicator"].by == "rsap 1x2"
    loss, found = on_ranks.trained(names)
    other_loss, other = on_ranks.trained(grid)
    assert loss == other_loss and all(np.array_equal(found[n], other[n]) for n in found)


@pytest.mark.on_ranks
def test_losses_and_times_are_of_all_ranks(names: dict[str, Any]) -> None:
    run = names["run"]
    assert in_each(names, lambda _: framework.slowest(run.rank + 1.0, run.own_devices)) == [2.0] * 2


@pytest.mark.on_ranks
def test_a_run_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    """To the weights of a whole run, bit for bit; the statistics are those that were saved."""
    whole = on_ranks.run_to_the_end(tmp_path / "whole")
    on_ranks.run_to_the_end(tmp_path / "begun", stopped=True)
    found = on_ranks.run_to_the_end(tmp_path / "begun", resume=True)
    assert found.keys() == whole.keys()
    assert all(np.array_equal(found[name], array) for name, array in whole.items())
