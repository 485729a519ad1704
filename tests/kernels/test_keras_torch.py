"""Runs in the pytorch environment: ``.venvs/pytorch/bin/python -m pytest`` with this file."""

from pathlib import Path
from typing import Any

from helpers.frameworks import keras_torch as framework  # before Keras, whose backend it sets

# isort: split
import keras
import keras_alike as alike
import pytest
import torch
from keras_alike import *
from notebook_cells import EPSILON_FIRST, namespace_of

from helpers.errors import UnsupportedError, UserError
from helpers.frameworks import keras_backends

ONE = framework.list_devices("cpu", 1)
GIVEN: dict[str, Any] = {"backend": "torch", "devices": 1}


def test_the_fairness_check_is_passed(notebook: dict[str, Any]) -> None:
    """On one device: what takes several is not checked, and says so."""
    table = notebook["this_run"].fairness_check.table()
    known = table[table["verdict"] == "expected difference"]
    assert set(known.index) == {*alike.KNOWN, EPSILON_FIRST}
    assert "fail" not in set(table["verdict"])
    unchecked = table[table["verdict"] == "not checked"]
    assert set(unchecked["reason"]) == {"there is one device"}


def test_several_devices_are_refused_with_the_reason(tmp_path: Path) -> None:
    """In the notebook, which a user may run by hand, and by the module itself."""
    with pytest.raises(UnsupportedError, match=r"devices 2: .*give it one device"):
        namespace_of(alike.NOTEBOOK, tmp_path, backend="torch", devices=2)
    with pytest.raises(UnsupportedError, match=r"devices 2: .*give it one device"):
        framework.list_devices("cpu", 2)
    assert framework.SKIPPED.get("several devices") is not None


def test_devices_and_versions() -> None:
    assert [torch.device("cpu")] == ONE
    assert keras.ops.zeros(1).device == ONE[0], "whatever the machine has"
    versions = framework.versions()
    assert (versions["keras"], versions["torch"]) == (keras.__version__, torch.__version__)
    assert "torchvision" not in versions
    framework.synchronize(ONE)


def test_another_backend_is_refused_in_a_line() -> None:
    with pytest.raises(UserError, match="Keras already runs on torch: restart the kernel"):
        keras_backends.module_of("jax")
