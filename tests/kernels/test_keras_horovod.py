"""Runs in the horovod environment: ``.venvs/horovod/bin/python -m pytest`` with this file."""

from pathlib import Path

import probed
import pytest
import with_horovod

from helpers.frameworks import keras_horovod as framework
from helpers.frameworks import tensorflow

NOTEBOOK = "Keras_Horovod"
TWO = tensorflow.list_devices("cpu", 2)  # of the notebook without Horovod, before all else


def test_two_ranks_train_what_two_devices_train_without_horovod(tmp_path: Path) -> None:
    with_horovod.assert_as_without(NOTEBOOK, tmp_path, 1e-6)


def test_without_horovods_tape_the_ranks_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_horovod.assert_ranks_part_without_the_tape(NOTEBOOK, tmp_path, monkeypatch)


def test_the_fairness_check_is_passed(tmp_path: Path) -> None:
    with_horovod.assert_fair(NOTEBOOK, tmp_path)


def test_the_probe_works(tmp_path: Path) -> None:
    probed.assert_works(framework, tmp_path, "cpu", 2, 1)
