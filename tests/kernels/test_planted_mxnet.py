"""Runs in the mxnet environment: ``.venvs/mxnet/bin/python -m pytest`` with this file."""

from pathlib import Path

import planted
import pytest

NOTEBOOK = "MXNet_Gluon_MultiGPU"


@pytest.mark.parametrize(("plants", "notebook", "devices"), planted.cases(NOTEBOOK))
def test_another_training_is_noticed(
    plants: str, notebook: str, devices: int, tmp_path: Path
) -> None:
    planted.assert_caught(plants, notebook, "mxnet", tmp_path, devices)


@pytest.mark.parametrize(("devices", "seed"), planted.as_it_is())
def test_the_notebook_as_it_is_passes(devices: int, seed: int, tmp_path: Path) -> None:
    planted.assert_sound(NOTEBOOK, "mxnet", tmp_path, devices, seed=seed)
