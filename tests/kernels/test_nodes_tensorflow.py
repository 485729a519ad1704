"""TensorFlow over two nodes. ``.venvs/tensorflow/bin/python -m pytest`` with this file."""

from pathlib import Path

import faulty_gradients
import numpy as np
import pytest
import stand_in_horovod
import two_nodes

from helpers.frameworks import tensorflow as framework

NOTEBOOK = "TensorFlow_MultiGPU"
TWO = framework.list_devices("cpu", 2)


def test_two_nodes_train_what_two_devices_train(tmp_path: Path) -> None:
    two_nodes.assert_as_one_process(NOTEBOOK, tmp_path, 1e-7, faulty_gradients.of_two)


@pytest.mark.slow  # that the test above fails where there is a fault
def test_a_part_of_the_batch_that_all_read_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound, broken = "own_batch(world))[:, world.rank].ravel()", "own_batch(world))[:, 0].ravel()"
    two_nodes.assert_fault_is_found(NOTEBOOK, tmp_path, monkeypatch, sound, broken)


def test_a_worker_that_dies_ends_all(tmp_path: Path) -> None:
    two_nodes.assert_a_death_ends_all(
        NOTEBOOK, tmp_path, two_nodes.rank_1_dies, r"killed \(signal 9"
    )


@pytest.mark.parametrize(("ranks", "images"), [(1, 4), (2, 4), (2, 3), (3, 4), (4, 4)])
def test_horovods_ranks_give_the_gradients_of_one_device(
    ranks: int, images: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stand_in_horovod.horovod(monkeypatch) as hvd:
        found, (one_loss, one) = stand_in_horovod.gradients(hvd, ranks, images)
    assert len(found) == ranks
    for loss, each in found:
        assert loss == pytest.approx(one_loss, abs=1e-12) and each.keys() == one.keys()
        for name, array in each.items():
            assert array.dtype == np.float64 and np.abs(array - one[name]).max() < 1e-12
