"""Runs in the chainer environment: ``.venvs/chainer/bin/python -m pytest`` with this file.

The ranks are real ones, under ``mpiexec``, and run the notebook's own cells.
"""

import json
import os
import pickle
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from operator import add
from pathlib import Path
from typing import Any

import chainermn_ranks as ranks
import copied
import faulty_gradients
import numpy as np
import pytest
import ranks_tools
from agreed import assert_resumed_takes_the_steps_of_a_whole_run, equal
from notebook_cells import CHECKED, failed, namespace_of
from resuming import write_small_images

from helpers import paths
from helpers.errors import LoaderError
from helpers.fairness import reference
from helpers.frameworks import chainermn as framework
from helpers.frameworks import mpi_ranks
from helpers.frameworks.replicas import ReplicaError
from helpers.launch import exchange
from helpers.launch.failures import RankError
from helpers.training.measured_run import Run
from helpers.training.world import World

NOTEBOOK = "ChainerMN_MultiNode"
STEPS = 3
EXPECTED = "expected.pickle"
SOON = 15.0
"""Seconds in which a run has ended, whatever has happened to it."""


def names_of(folder: Path, notebook: str = NOTEBOOK, **given: Any) -> dict[str, Any]:
    """A notebook's names, whose run has its notebook's functions; 8 small images on each device."""
    how: dict[str, Any] = {"until": CHECKED, "checked": False, "batch_size": 8, "num_workers": 0}
    return namespace_of(notebook, folder, data=str(images(folder)), **how, **given)


def run_of(folder: Path, notebook: str = NOTEBOOK, **given: Any) -> Run:
    run: Run = names_of(folder, notebook, **given)["this_run"]
    return run


def images(folder: Path) -> Path:
    data = folder / "data"
    with exchange.first_rank_first():
        return data if data.exists() else write_small_images(data)


@contextmanager
def planted(folder: Path, sound: str, broken: str) -> Iterator[Run]:
    """The run of a notebook with another text."""
    source = paths.NOTEBOOKS / f"{NOTEBOOK}.ipynb"
    text = source.read_text(encoding="utf-8")
    old, new = (json.dumps(part)[1:-1] for part in (sound, broken))
    assert text.count(old) == 1, sound
    with exchange.first_rank_first():
        folder.mkdir(exist_ok=True)
        (folder / source.name).write_text(text.replace(old, new), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "NOTEBOOKS", folder)
        yield run_of(folder)


@pytest.fixture(scope="module", name="run")
def run_fixture() -> Run:
    """On two simulated nodes, of which this process is a rank."""
    return run_of(ranks_tools.here().folder.parent)


def test_on_ranks(tmp_path: Path) -> None:
    """All that is marked so, once Chainer itself has trained the same on two devices."""
    alone = run_of(tmp_path / "alone", "Chainer_MultiGPU", devices=2)
    expected = ranks.train(World(0, 2, alone.devices, "cpu"), alone.work(), STEPS)
    (tmp_path / EXPECTED).write_bytes(pickle.dumps(expected))
    ranks_tools.run_tests(tmp_path, __file__, framework="chainermn")


def test_an_all_reduce_is_the_sum_and_a_rank_that_fails_is_an_error() -> None:
    shares = [np.arange(5, dtype=np.float32) * factor for factor in (1, 10)]
    devices = framework.list_devices("cpu", 2)
    for found in framework.all_reduced(shares, devices):
        assert np.array_equal(found, shares[0] + shares[1])
    # Both fail; the launcher ends the later one, at times before it could say why.
    with pytest.raises(ReplicaError, match=r"\[[01]\] TypeError: can only concat"):
        mpi_ranks.call("ChainerMN", partial(add, "a text"), devices)


@pytest.mark.on_ranks
def test_two_ranks_train_as_one_process_with_two_devices(run: Run) -> None:
    """The same images in each step, the same mean of gradients: the same bits."""
    expected = pickle.loads((run.folder.parent / EXPECTED).read_bytes())
    scores = expected[3]
    first, second = run.everywhere(ranks.train, STEPS)
    for network, optimiser, loss, own_scores in (first, second):
        assert equal(network, expected[0]) and equal(optimiser, expected[1])
        assert loss == expected[2] and np.abs(own_scores - scores).max() < 1e-5


@pytest.mark.on_ranks
def test_two_ranks_train_over_a_grid_as_by_naive(run: Run, tmp_path: Path) -> None:
    """Two summands have one order only: the same bits."""
    over_grid = run_of(tmp_path, all_reduce="rsap 1x2")
    found = over_grid.everywhere(ranks.train, STEPS)
    ways = over_grid.everywhere(ranks.all_reduces_by)
    assert ways == ["rsap 1x2"] * 2 and run.everywhere(ranks.all_reduces_by) == ["naive"] * 2
    for each, other in zip(found, run.everywhere(ranks.train, STEPS), strict=True):
        assert all(equal(*pair) for pair in zip(each[:2], other[:2], strict=True))


@pytest.mark.on_ranks
def test_without_all_reduce_every_rank_is_on_its_own(run: Run) -> None:
    first, second = run.everywhere(ranks.train_alone, STEPS)
    assert not np.array_equal(first["classifier.weight"], second["classifier.weight"])


@pytest.mark.on_ranks
def test_losses_and_times_are_of_all_ranks(run: Run) -> None:
    assert run.everywhere(ranks.slowest_and_mean) == [(2.0, 1.25)] * 2


@pytest.mark.on_ranks
def test_the_ranks_gradients_are_those_of_one_device(run: Run) -> None:
    faulty_gradients.assert_compared(run)


@pytest.mark.on_ranks
def test_a_gradient_that_is_not_contiguous_is_averaged_too(run: Run) -> None:
    for found in run.everywhere(ranks.mean_of_a_transposed_gradient, True):
        assert (found == 0.5).all()
    left = run.everywhere(ranks.mean_of_a_transposed_gradient, False)
    assert [found[0, 0] for found in left] == [0, 0.5], "half of their own; or it was mended"


@pytest.mark.on_ranks
def test_the_optimiser_is_where_it_was(run: Run) -> None:
    """The state comes back bit for bit, and the next step is the one that would have come."""
    start: Any = reference.shallow_arrays(), {}
    ((two, three), (again, _)) = (
        [run.everywhere(ranks.go_on, start, steps)[0] for steps in (2, 3)],
        run.everywhere(ranks.go_on, start, 2),
    )
    assert all(equal(*pair) for pair in zip(two, again, strict=True))
    for found in run.everywhere(ranks.go_on, two, 1):
        assert all(equal(*pair) for pair in zip(found, three, strict=True))
    assert three[1]["step"] == 3 and np.abs(two[1]["second/classifier.weight"]).max() > 0


# Every image once


def check_images(run: Run, left_out: int) -> None:
    """The images of two epochs and an evaluation over all ranks."""
    found = run.everywhere(ranks.rows_read, left_out)
    steps, table = run.recipe.steps(len(run.images.train)), run.images.train
    epochs = []
    for epoch in (slice(steps), slice(steps, None)):
        rows = [row for own, _ in found for step in own[epoch] for row in step]
        assert len(rows) == steps * run.recipe.global_batch_size, "the dropped remainder"
        assert len(set(rows)) == len(rows), "an image twice"
        assert set(rows) <= set(table["row"])
        epochs.append([step for own, _ in found for step in own[epoch]])
    assert epochs[0] != epochs[1], "another order in the next epoch"
    assert sorted(row for _, rows in found for row in rows) == sorted(
        run.images.test["row"][left_out:]
    ), "evaluation reads each once"


@pytest.mark.on_ranks
@pytest.mark.parametrize("left_out", [0, 1])
def test_every_image_is_read_once(run: Run, left_out: int) -> None:
    """The test part too, whether it is even or not."""
    check_images(run, left_out)


@pytest.mark.on_ranks
@pytest.mark.parametrize(
    ("sound", "broken", "said"),
    [
        ("return by_rank[first:end]", "return np.arange(count)", "remainder|twice"),
        ("force_equal_length=False)", "force_equal_length=True)", "each once"),
        ("rng([scaled.recipe.seed, epoch])", "rng([scaled.recipe.seed, 0])", "another order"),
    ],
)
def test_wrong_shares_are_found(tmp_path: Path, sound: str, broken: str, said: str) -> None:
    with planted(tmp_path / "planted", sound, broken) as run:
        uneven = (len(run.images.test) + 1) % 2
        with pytest.raises((AssertionError, LoaderError), match=said):
            check_images(run, uneven)


# The training-loop check


@pytest.mark.on_ranks
def test_the_training_loop_check_is_passed(run: Run) -> None:
    run.check_training_loop(**vars(run.functions))
    assert len(run.fairness_check.checks) == 16 and failed(run.fairness_check.checks) == set()
    reasons = {check.check: check.reason for check in run.fairness_check.checks}
    assert reasons["which replica's running statistics are kept"] == "replica 0's"


@pytest.mark.on_ranks
@pytest.mark.parametrize(
    ("sound", "broken", "found"),
    [
        ("return loss  # of this", "return 2 * loss  # of this", "weight change after 5 SGD steps"),
        ("    multi_node.update()", "    pass", "weight change after 5 SGD steps"),
        ("    share_statistics(replica)\n", "", "validated with the statistics that are saved"),
    ],
)
def test_a_fault_in_the_loop_is_found(tmp_path: Path, sound: str, broken: str, found: str) -> None:
    """A sum in place of the mean; a first step that is lost; statistics that are not sent."""
    with planted(tmp_path / "planted", sound, broken) as run:
        run.check_training_loop(**vars(run.functions))
        assert found in failed(run.fairness_check.checks)


@pytest.mark.on_ranks
def test_without_the_multi_node_optimiser_the_ranks_part(tmp_path: Path) -> None:
    """In the training-loop check all have the same images, and so would not."""
    sound, broken = ", multi_node)", ", multi_node.actual_optimizer)"
    with planted(tmp_path / "planted", sound, broken) as run:
        first, second = run.everywhere(ranks.train, STEPS)
        assert not np.array_equal(first[0]["classifier.weight"], second[0]["classifier.weight"])


# A run that was interrupted


@pytest.mark.on_ranks
def test_a_run_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    assert_resumed_takes_the_steps_of_a_whole_run(names_of(tmp_path, epochs=2))


# A rank that fails


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("raises", "ValueError: no such image"),
        ("is killed", "killed (signal 9; out of memory?)"),
    ],
)
def test_a_rank_that_fails_ends_all(tmp_path: Path, how: str, cause: str) -> None:
    """The others wait for it in MPI, from which no exception would free them."""
    cell = f"import test_chainermn\ntest_chainermn.fail({str(tmp_path)!r}, {how!r})"
    with pytest.raises(RankError) as caught:
        ranks_tools.run(tmp_path, cell, framework="chainermn")
    assert time.time() - (tmp_path / "failed").stat().st_mtime < SOON
    assert str(caught.value) == f"rank 1 on {os.uname().nodename}: {cause}"
    assert ranks_tools.nothing_is_left(tmp_path)


def fail(folder: str, how: str) -> None:
    """On a rank."""
    run = run_of(Path(folder))
    assert run.everywhere(ranks.slowest_and_mean), "the ranks are in"
    (Path(folder) / "failed").touch()
    run.everywhere(ranks.fail_in_a_step, how)


def test_its_cells_train_in_another_project(tmp_path: Path) -> None:
    launcher = (str(paths.MPIEXEC), "-n", "2", sys.executable, "-m", "mpi4py")
    copied.assert_trains(NOTEBOOK, tmp_path / "other", launcher)
