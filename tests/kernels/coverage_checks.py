"""The world's rows of a notebook's own loaders and loop, as they are or with a fault planted."""

from pathlib import Path
from typing import Any

import numpy as np
from notebook_cells import (
    CHECKED,
    failed,
    functions_with,
    namespace_of,
    planted,
    write_noise_images,
)
from PIL import Image

from helpers.fairness.check_results import Check
from helpers.training import data_coverage


def different(folder: Path) -> Path:
    """A data folder of 200 small images of which no two are alike: they train in little time."""
    target = write_noise_images(folder)
    with Image.open(target / "noise.png") as image:
        noise = np.asarray(image)
    for number, path in enumerate(sorted((target / "images").iterdir())):
        path.unlink()  # all were one file
        Image.fromarray(np.roll(noise, 7 * number)[:38, :38]).save(path)
    return target


def world_of(notebook: str, folder: Path) -> dict[str, Any]:
    """The notebook's names for two virtual devices, nothing checked, and no two images alike.

    Of 140 images for training, batches of 16 on each device leave 12; of 30 for validation, 30.
    """
    names = namespace_of(
        notebook,
        folder,
        devices=2,
        until=CHECKED,
        checked=False,
        data=str(different(folder)),
        batch_size=16,
        epochs=1,
    )
    return names


def _called(names: dict[str, Any]) -> list[Check]:
    """What the data-coverage check of the run's notebook's functions finds."""
    run = names["this_run"]
    world = run.world
    return data_coverage.check_fairness(
        run.everywhere,
        run.images,
        run.recipe,
        processes=world.processes,
        hosts=1,
    )


def failed_in_data_coverage(
    names: dict[str, Any], notebook: str, sound: str, broken: str
) -> set[str]:
    """Names of the world's rows that a notebook fails which has a fault in it."""
    run = names["this_run"]
    functions = run.functions
    try:
        with planted(names, notebook, sound, broken):
            run.take(functions_with(names))
            return failed(_called(names))
    finally:
        run.take(functions)


def failed_after_training(
    names: dict[str, Any], notebook: str, sound: str, broken: str
) -> set[str]:
    """Names of the rows that it fails once it has trained."""
    run = names["this_run"]
    functions = run.functions
    try:
        with planted(names, notebook, sound, broken):
            run.take(functions_with(names))
            run.train()
    finally:
        run.take(functions)
    return failed(run.fairness_check.checks)
