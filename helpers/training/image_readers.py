"""Open the reader of a run's images: one of ``data_prep``, or the recipe's custom reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

import data_prep
from data_prep.catalog import Catalog
from data_prep.readers import Reader
from data_prep.readers.catalog_reader import CatalogReader, to_channels
from data_prep.split import SPLITS
from helpers.errors import UserError
from helpers.recipe import Recipe, custom_code

OWN = "own"
OF_DATA_PREP = {"split": "shares", "val_fraction": "valid"}
"""What ``data_prep`` calls a recipe's options, where it has other names for them."""
COLUMNS = ("image", "path", "row", "group")
"""Columns of a split's table, apart from its labels."""
_last: dict[str, Any] = {}
"""The reader that was opened last, and of what."""


class OwnImages(CatalogReader):
    """The images of a custom reader, which knows neither names nor groups."""

    def __init__(self, recipe: Recipe, own: Reader) -> None:
        self.recipe, self.own, where = recipe, own, recipe.own[custom_code.READER]
        numbers = range(len(np.asarray(own.targets)))
        catalog = Catalog(
            Path(recipe.beside),
            images=[f"{i:08d}" for i in numbers],
            sources=[f"{where}: image {i}" for i in numbers],
            classes=tuple(own.classes),
            labels=np.asarray(own.targets),
        )
        super().__init__(catalog, channels=recipe.planes)

    def splits(self, seed: int | None = None) -> dict[str, np.ndarray]:
        found = self.own.splits()
        return {name: np.asarray(found[name]) for name in SPLITS}

    def read(self, i: int) -> np.ndarray:
        with custom_code.report_errors(self.recipe, custom_code.READER, f"read({i})"):
            image = self.own.read(i)
        shape: tuple[int, ...] = getattr(image, "shape", ())
        if getattr(image, "dtype", None) != np.uint8 or len(shape) != 3 or shape[2] not in (1, 3):
            raise UserError(f"{self.catalog.path(i)}: must be uint8 (height, width, 1 or 3)")
        return to_channels(image, self.channels)


def open_images(recipe: Recipe, folder: Path | None) -> CatalogReader:
    """The recipe's reader of a folder, checked; opened once, until something changes there.

    Raises:
        DataError, UserError: in one line, what is wrong with the folder or with the own code.
    """
    settings = recipe.reader, recipe.planes, recipe.options, recipe.own, recipe.code, recipe.beside
    key = folder, _changed(folder), settings
    if _last.get("key") != key:
        _last.clear()
        _last.update(key=key, reader=_opened(recipe, folder))
    reader: CatalogReader = _last["reader"]
    return reader


def again(recipe: Recipe, folder: Path | None) -> CatalogReader:
    """Open the images as :func:`open_images`, with a new instance of a custom reader."""
    _last.clear()
    return open_images(recipe, folder)


def called(recipe: Recipe, folder: Path | None) -> str:
    """Where the images come from: the folder, or ``mine.py:Reader``."""
    return recipe.own[custom_code.READER] if folder is None else str(folder)


def _opened(recipe: Recipe, folder: Path | None) -> CatalogReader:
    if recipe.reader == OWN:
        reader: CatalogReader = _own(recipe, folder)
    else:
        assert folder is not None
        options = {OF_DATA_PREP.get(key, key): value for key, value in recipe.options.items()}
        reader = data_prep.open_reader(recipe.reader, folder, channels=recipe.planes, **options)
    if reader.task == "findings" and (taken := set(reader.classes) & set(COLUMNS)):
        where = called(recipe, None if recipe.reader == OWN else folder)
        raise UserError(f"{where}: a finding is called '{min(taken)}': give it another name")
    return reader


def _own(recipe: Recipe, folder: Path | None) -> OwnImages:
    where = recipe.own[custom_code.READER]
    name, given = where.rpartition(":")[2], () if folder is None else (folder,)
    said = f"{name}({'folder' * len(given)})"
    with custom_code.report_errors(recipe, custom_code.READER, said):
        reader: Reader = custom_code.load(recipe, custom_code.READER)(*given)
        data_prep.check_reader(reader, where)
    try:
        cloudpickle.dumps(reader)
    except Exception as error:
        raise UserError(
            f"{where}: cannot be sent to the worker processes ({error}): "
            "open files in read, not before"
        ) from error
    return OwnImages(recipe, reader)


def _changed(folder: Path | None) -> int:
    """The last change of images or labels, so that old data is not treated as new."""
    if folder is None:
        return 0
    places = [folder, *folder.glob("*"), *folder.glob("*/*/")]
    return max((place.stat().st_mtime_ns for place in places if place.exists()), default=0)
