"""Runs in the horovod environment: ``.venvs/horovod/bin/python -m pytest`` with this file.

The ranks are real ones, under ``mpiexec``, and run the notebook's own cells.
"""

from pathlib import Path
from typing import Any

import own_networks
import pytest
import ranks_tools
import shared_batches
from notebook_program import fairness_check, names_of

from helpers.fairness import process_checks, training_loop
from helpers.frameworks import rank_info

NOTEBOOK = "Keras_Horovod"
TAPE = "tape = hvd.DistributedGradientTape(tape)  # multi-GPU"


def test_on_ranks(tmp_path: Path) -> None:
    """All that is marked so."""
    ranks_tools.run_tests(tmp_path, __file__, framework="keras_horovod")


def own_names(folder: Path, **how: Any) -> dict[str, Any]:
    """On two simulated nodes, of which this process is a rank; a small custom network."""
    with rank_info.first_rank_first():
        if not folder.exists():
            own_networks.recipe_of_classes(folder, "keras")
    recipe = str(folder / "mine.toml")
    return names_of(NOTEBOOK, folder, recipe=recipe, data="auto", batch_size=8, **how)


@pytest.fixture(scope="module", name="names")
def names_fixture() -> dict[str, Any]:
    return own_names(ranks_tools.folder() / "sound")


@pytest.mark.on_ranks
def test_the_fairness_check_is_passed(names: dict[str, Any]) -> None:
    found = fairness_check(names)
    if ranks_tools.here().rank:
        return  # rank 0 has the rows of all
    assert found.comparable
    reasons = {check.check: check.reason for check in found.checks}
    assert reasons["which replica's running statistics are kept"] == "replica 0's"
    assert reasons[process_checks.JOINED] == "2 processes, 2 devices, 1 host"


@pytest.mark.on_ranks
def test_each_rank_has_its_block_of_the_global_batches_of_the_rule(names: dict[str, Any]) -> None:
    run = names["run"]
    (found,) = shared_batches.trained_on(names, run.train_split, [1])
    expected = shared_batches.by_the_rule(
        run, run.train_split, run.train_split.read, 1, run.rank, 2
    )
    shared_batches.assert_same(found, expected)


@pytest.mark.on_ranks
def test_without_horovods_tape_the_ranks_part() -> None:
    folder = ranks_tools.folder() / "planted"
    found = {
        check.check: check
        for check in fairness_check(own_names(folder, changes={TAPE: "pass"})).checks
    }
    if not ranks_tools.here().rank:
        assert found[training_loop.TOGETHER].verdict == "fail"
