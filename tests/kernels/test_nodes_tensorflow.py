"""TensorFlow over two nodes. ``.venvs/tensorflow/bin/python -m pytest`` with this file."""

import os
import signal
from pathlib import Path
from threading import Timer

import notebook_program
import numpy as np
import pytest
import ranks_tools
import stand_in_horovod
from trained_on_ranks import assert_the_same, given, on_ranks, prepare, train

from helpers import record
from helpers.frameworks import tensorflow as framework
from helpers.launch.failures import RankError

NOTEBOOK = "TensorFlow_MultiGPU"
TWO = framework.list_devices("cpu", 2)


def talk(folder: str) -> None:
    """On a rank: talk to the other for ever; after two seconds rank 1 is killed."""
    names = notebook_program.names_of(NOTEBOOK, Path(folder), **given(folder, 1))
    run = names["run"]
    names["build_model"]()
    run.framework.slowest(0.0, run.own_devices)
    if run.rank == 1:
        Timer(2, os.kill, [os.getpid(), signal.SIGKILL]).start()
    while True:
        run.framework.slowest(0.0, run.own_devices)


def test_two_nodes_train_what_two_devices_train(tmp_path: Path) -> None:
    prepare(tmp_path, "tensorflow")
    on_ranks(NOTEBOOK, tmp_path, "nodes", 2, 1)
    train(NOTEBOOK, str(tmp_path), "one", 2)
    assert_the_same(tmp_path, "nodes", "one")
    assert record.read(tmp_path / "nodes")["cluster"]["nodes"] == 2


def test_a_worker_that_dies_ends_all(tmp_path: Path) -> None:
    (run := prepare(tmp_path, "tensorflow") / "run").mkdir()
    cell = f"import test_nodes_tensorflow as t\nt.talk({str(tmp_path)!r})"
    with pytest.raises(RankError, match=r"^rank 1 on .*killed \(signal 9"):
        ranks_tools.run(run, cell, devices=1, framework="tensorflow")
    assert ranks_tools.nothing_is_left(tmp_path)


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
