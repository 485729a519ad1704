"""Runs in the pytorch environment: ``.venvs/pytorch/bin/python -m pytest`` with this file."""

from pathlib import Path

import planted_cells
import pytest


def test_every_plant_has_a_place_in_its_notebooks() -> None:
    planted_cells.assert_there()


@pytest.mark.parametrize(("plants", "notebook", "devices"), [*planted_cells.cases()])
def test_another_training_is_noticed(
    plants: str, notebook: str, devices: int, tmp_path: Path
) -> None:
    planted_cells.assert_caught(plants, notebook, tmp_path, devices)


@pytest.mark.parametrize(("notebook", "devices", "seed"), [*planted_cells.as_it_is()])
def test_the_notebook_as_it_is_passes(
    notebook: str, devices: int, seed: int, tmp_path: Path
) -> None:
    planted_cells.assert_sound(notebook, tmp_path, devices, seed)
