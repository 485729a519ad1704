"""Find the folder of a run's images, and generate images if there are none."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import data_prep
from data_prep import synthetic_folder, synthetic_nih, synthetic_shapes
from data_prep.files import exclusive_lock
from data_prep.readers import cifar10
from helpers import paths
from helpers.errors import UserError
from helpers.recipe import Recipe
from helpers.training.image_data import OWN

REAL = {"nih": "nih-{}", "cifar10": "cifar10", "imagefolder": "imagenet-{}"}
"""Where the real images of a reader are looked for under data/, by their size."""
CIFAR10 = (cifar10.META_FILE, cifar10.FOLDER)
"""One of these is in a folder with CIFAR-10; of generated ones the first comes last."""
UNSIZED = 64
"""Pixels of generated images where the recipe takes whatever size images have."""
SMALL, SMALL_SOURCE = 64, 256
"""Up to so many pixels, X-rays are made from generated ones of so many, not of the NIH's 1024."""


class StandIn(NamedTuple):
    """Generated images in the published format of a reader.

    ``name`` is their folder's under data/, with the generator's version; ``resize`` are arguments
    of ``data_prep.resize_folder``.
    """

    name: str
    make: Callable[[Path], Any]
    resize: Mapping[str, Any] = {}


SHAPES = synthetic_shapes.TOOL.rpartition(" ")[2]
STAND_INS = {
    "nih": StandIn(f"demo-{synthetic_nih.VERSION}", lambda to: data_prep.generate_nih(to)),
    "nih, small": StandIn(
        f"demo-small-{synthetic_nih.VERSION}",
        lambda to: data_prep.generate_nih(to, size=SMALL_SOURCE),
    ),
    "imagefolder": StandIn(
        f"demo-imagefolder-{SHAPES}",
        synthetic_shapes.generate_imagefolder,
        {"reader": "imagefolder", "format": "jpeg", "resize_mode": "center-crop"},
    ),
    "cifar10": StandIn(
        f"demo-cifar10-{SHAPES}", synthetic_shapes.generate_cifar10, {"reader": "cifar10"}
    ),
}


def _stand_in(recipe: Recipe) -> StandIn:
    if recipe.reader not in STAND_INS:
        raise UserError(f"the reader {recipe.reader} needs your images: name their folder")
    small = recipe.reader == "nih" and recipe.image_size <= SMALL
    return STAND_INS["nih, small" if small else recipe.reader]


def prepare_data(recipe: Recipe, data: str | Path = "auto") -> Path | None:
    """The folder with the images to train on, generated if missing; None with a custom reader."""
    folder = data_folder(recipe, data)
    if data == "auto" and folder is not None and not _is_there(folder):
        _make(recipe, folder)
    return folder


def data_folder(recipe: Recipe, data: str | Path = "auto") -> Path | None:
    """The folder :func:`prepare_data` gives, whether its images are there yet or not."""
    if data != "auto":
        for folder in (Path(data), paths.ROOT / data):
            if folder.exists():
                return folder.resolve()
        right = "a label file and images/" if recipe.reader == "nih" else "the images"
        raise UserError(f"data folder '{data}' does not exist: name one with {right}")
    if recipe.reader == OWN:
        return None
    if recipe.name != "demo" and recipe.reader in REAL:
        real = paths.DATA / REAL[recipe.reader].format(recipe.image_size)
        if _is_there(real):
            return real
    source = paths.DATA / _stand_in(recipe).name
    if recipe.reader == "cifar10" and recipe.image_size in (0, 32):  # read as it is published
        return source
    grey = "" if recipe.reader == "nih" else "-grey"
    colour = "-rgb" if recipe.planes == 3 else grey
    return Path(f"{source}-{recipe.image_size or UNSIZED}{colour}")


def _is_there(folder: Path) -> bool:
    """Whether data_prep has prepared it, or it is CIFAR-10, which need not be."""
    if folder.name in (REAL["cifar10"], STAND_INS["cifar10"].name):
        return any((folder / name).exists() for name in CIFAR10)
    return data_prep.is_complete(folder)


def _make(recipe: Recipe, folder: Path) -> None:
    """By one process, for which the others wait: jobs of a cluster begin together."""
    stand_in = _stand_in(recipe)
    source = paths.DATA / stand_in.name
    with exclusive_lock(paths.DATA, synthetic_folder.LOCK_TIMEOUT):
        if _is_there(folder):
            return
        print(f"Generating images in {source}, once", flush=True)
        stand_in.make(source)
        if folder != source:
            size = recipe.image_size or UNSIZED
            print(f"Resizing them to {size} px in {folder}, once", flush=True)
            how = {**stand_in.resize, "size": size, "channels": recipe.planes}
            data_prep.resize_folder(source, folder, **how)
