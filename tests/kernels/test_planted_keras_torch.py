"""Runs in the pytorch environment: ``.venvs/pytorch/bin/python -m pytest`` with this file."""

from pathlib import Path

import planted
import pytest

NOTEBOOK = "Keras_MultiGPU"


@pytest.mark.parametrize(("plants", "notebook", "devices"), planted.cases(NOTEBOOK, most=1))
def test_another_training_is_noticed(
    plants: str, notebook: str, devices: int, tmp_path: Path
) -> None:
    planted.assert_caught(plants, notebook, "keras", tmp_path, devices, backend="torch")


@pytest.mark.parametrize(("devices", "seed"), planted.as_it_is(most=1))
def test_the_notebook_as_it_is_passes(devices: int, seed: int, tmp_path: Path) -> None:
    planted.assert_sound(NOTEBOOK, "keras", tmp_path, devices, seed=seed, backend="torch")
