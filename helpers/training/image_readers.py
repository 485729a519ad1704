"""Open the reader of a run's images: one of ``data_prep``, or the recipe's custom reader."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy as np

import data_prep
from data_prep.readers import Reader
from data_prep.readers.catalog_reader import CatalogReader
from data_prep.split import SPLITS
from helpers.errors import UserError
from helpers.recipe import Recipe, custom_code
from helpers.recipe.settings import MULTICLASS, MULTILABEL

if TYPE_CHECKING:
    import pandas as pd

OWN = "own"
OF_DATA_PREP = {"split": "shares", "val_fraction": "valid"}
"""What ``data_prep`` calls a recipe's options, where it has other names for them."""
COLUMNS = ("image", "path", "row", "group")
"""Columns of a split's table, apart from its labels."""


def open_images(recipe: Recipe, folder: Path | None) -> Reader:
    """The recipe's reader of a folder, checked; opened once, until something changes there.

    Raises:
        DataError, UserError: in one line, what is wrong with the folder or with the own code.
    """
    if recipe.reader == OWN:
        where = recipe.own[custom_code.READER]
        name = where.rpartition(":")[2]
        with custom_code.report_errors(recipe, custom_code.READER, name):
            maker = custom_code.load(recipe, custom_code.READER)
        with custom_code.report_errors(
            recipe, custom_code.READER, f"{name}({'' if folder is None else 'folder'})"
        ):
            return _own(maker, where, folder, _changed(folder))
    assert folder is not None
    given = {OF_DATA_PREP.get(key, key): value for key, value in recipe.options.items()}
    options = json.dumps(given, sort_keys=True, default=str)
    return _opened(recipe.reader, folder, recipe.planes, options, _changed(folder))


def again(recipe: Recipe, folder: Path | None) -> Reader:
    """Open the images as :func:`open_images`, with a new instance of a custom reader."""
    _own.cache_clear()
    return open_images(recipe, folder)


def listed(reader: Reader) -> list[Any]:
    """The classes, the targets and the splits of a reader."""
    splits = reader.splits()
    indices = [np.asarray(splits[name]).tolist() for name in SPLITS]
    return [list(reader.classes), np.asarray(reader.targets).tolist(), indices]


def called(recipe: Recipe, folder: Path | None) -> str:
    """Where the images come from: the folder, or ``mine.py:Reader``."""
    return recipe.own[custom_code.READER] if folder is None else str(folder)


def task_of(reader: Reader) -> str:
    """``multilabel`` or ``multiclass``."""
    return MULTILABEL if np.asarray(reader.targets).ndim == 2 else MULTICLASS


def tables(reader: Reader, recipe: Recipe) -> dict[str, pd.DataFrame]:
    """The tables ``train``, ``valid`` and ``test`` of ``image_data.Data``."""
    table = reader.table() if isinstance(reader, CatalogReader) else _table(reader, recipe)
    splits = reader.splits(recipe.seed) if isinstance(reader, CatalogReader) else reader.splits()
    return {name: table.iloc[rows].reset_index(drop=True) for name, rows in splits.items()}


@lru_cache(maxsize=1)
def _opened(name: str, folder: Path, planes: int, options: str, changed: int) -> CatalogReader:
    reader = data_prep.open_reader(name, folder, channels=planes, **json.loads(options))
    _check_names(reader, str(folder))
    return reader


@lru_cache(maxsize=1)
def _own(maker: Callable[..., Any], where: str, folder: Path | None, changed: int) -> Reader:
    reader: Reader = maker() if folder is None else maker(folder)
    data_prep.check_reader(reader, where)
    try:
        cloudpickle.dumps(reader)
    except Exception as error:
        raise UserError(
            f"{where}: cannot be sent to the worker processes ({error}): "
            "open files in read, not before"
        ) from error
    _check_names(reader, where)
    return reader


def _check_names(reader: Reader, where: str) -> None:
    if task_of(reader) == MULTILABEL and (taken := set(reader.classes) & set(COLUMNS)):
        raise UserError(f"{where}: a finding is called '{min(taken)}': give it another name")


def _table(reader: Reader, recipe: Recipe) -> pd.DataFrame:
    """As ``CatalogReader.table``, of a reader that knows neither names nor groups."""
    import pandas as pd

    targets = np.asarray(reader.targets)
    names = [f"{i:08d}" for i in range(len(targets))]
    columns = {
        "image": pd.Series(names, dtype=object),
        "path": recipe.own[custom_code.READER],
        "row": np.arange(len(targets)),
        "group": pd.Series(names, dtype=object),
    }
    if targets.ndim == 1:
        columns["class"] = targets.astype(np.int64)
    else:
        columns |= {name: targets[:, at] for at, name in enumerate(reader.classes)}
    return pd.DataFrame(columns)


def _changed(folder: Path | None) -> int:
    """The last change of images or labels, so that old data is not treated as new."""
    if folder is None:
        return 0
    places = [folder, *folder.glob("*"), *folder.glob("*/*/")]
    return max((place.stat().st_mtime_ns for place in places if place.exists()), default=0)
