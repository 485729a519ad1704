"""Runs in the pytorch environment: ``.venvs/pytorch/bin/python -m pytest`` with this file."""

from pathlib import Path

import planted
import pytest

NOTEBOOKS = ("PyTorch_MultiGPU", "PyTorch_MultiGPU_Exp_Loss")


@pytest.mark.parametrize(("plants", "notebook", "devices"), planted.cases(*NOTEBOOKS))
def test_another_training_is_noticed(
    plants: str, notebook: str, devices: int, tmp_path: Path
) -> None:
    planted.assert_caught(plants, notebook, "pytorch", tmp_path, devices)


@pytest.mark.parametrize(("devices", "seed"), planted.as_it_is())
def test_the_notebook_as_it_is_passes(devices: int, seed: int, tmp_path: Path) -> None:
    for notebook in NOTEBOOKS:
        planted.assert_sound(notebook, "pytorch", tmp_path / notebook, devices, seed=seed)
