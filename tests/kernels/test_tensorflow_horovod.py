"""Runs in the horovod environment: ``.venvs/horovod/bin/python -m pytest`` with this file."""

from pathlib import Path

import pytest
from trained_on_ranks import assert_the_same, on_ranks, prepare, train

from helpers import record
from helpers.frameworks import tensorflow

NOTEBOOK = "TensorFlow_Horovod"
TAPE = "tape = hvd.DistributedGradientTape(tape)"
TWO = tensorflow.list_devices("cpu", 2)  # of the notebook without Horovod, before all else


@pytest.fixture(name="folder")
def folder_fixture(tmp_path: Path) -> Path:
    return prepare(tmp_path, "tensorflow")


def test_two_ranks_train_what_two_devices_train_without_horovod(folder: Path) -> None:
    train("TensorFlow_MultiGPU", str(folder), "without", 2)
    for name, nodes, devices in (("nodes", 2, 1), ("devices", 1, 2)):
        on_ranks(NOTEBOOK, folder, name, nodes, devices)
        assert_the_same(folder, name, "without")


def test_a_step_without_horovods_tape_is_caught(folder: Path) -> None:
    on_ranks(NOTEBOOK, folder, "planted", 1, 2, {TAPE: "pass"})
    rows = {row["check"]: row for row in record.read(folder / "planted")["fairness"]["checks"]}
    row = rows["classifier after a step on different images"]
    assert row["verdict"] == "fail" and "does each device train alone?" in str(row["reason"])
