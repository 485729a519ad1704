"""Open the images of a run, check them against the recipe, split them and read them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy as np

import data_prep
from data_prep import manifest
from data_prep.catalog import Catalog, split_notes
from data_prep.files import read_json
from data_prep.readers import Reader
from data_prep.readers.catalog_reader import CatalogReader, to_channels
from data_prep.split import SPLITS, describe_groups
from helpers.errors import UserError
from helpers.recipe import Recipe, custom_code
from helpers.recipe.settings import MULTICLASS, MULTILABEL
from helpers.record import run_identity, tasks

if TYPE_CHECKING:
    import pandas as pd

OWN = "own"
OF_DATA_PREP = {"split": "shares", "val_fraction": "valid"}
"""What ``data_prep`` calls a recipe's options, where it has other names for them."""
COLUMNS = ("image", "path", "row", "group")
"""Columns of a split's table, apart from its labels."""
_last: dict[str, Any] = {}
"""The reader that was opened last, and of what."""
LARGEST = 264
"""Above this many pixels images are to be resized first, unless the recipe's own size is larger."""
LARGEST_UNSIZED = 1024
"""The same limit where the recipe names no size; to use larger images, set a size there."""


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


def called(recipe: Recipe, folder: Path | None) -> str:
    """Where the images come from: the folder, or ``mine.py:Reader``."""
    return recipe.own[custom_code.READER] if folder is None else str(folder)


def _opened(recipe: Recipe, folder: Path | None) -> CatalogReader:
    if recipe.reader == OWN:
        where = recipe.own[custom_code.READER]
        name, given = where.rpartition(":")[2], () if folder is None else (folder,)
        said = f"{name}({'folder' * len(given)})"
        with custom_code.report_errors(recipe, custom_code.READER, said):
            own: Reader = custom_code.load(recipe, custom_code.READER)(*given)
            data_prep.check_reader(own, where)
        try:
            cloudpickle.dumps(own)
        except Exception as error:
            raise UserError(
                f"{where}: cannot be sent to the worker processes ({error}): "
                "open files in read, not before"
            ) from error
        reader: CatalogReader = OwnImages(recipe, own)
    else:
        assert folder is not None
        options = {OF_DATA_PREP.get(key, key): value for key, value in recipe.options.items()}
        reader = data_prep.open_reader(recipe.reader, folder, channels=recipe.planes, **options)
    if reader.task == "findings" and (taken := set(reader.classes) & set(COLUMNS)):
        where = called(recipe, None if recipe.reader == OWN else folder)
        raise UserError(f"{where}: a finding is called '{min(taken)}': give it another name")
    return reader


def _changed(folder: Path | None) -> int:
    """The last change of images or labels, so that old data is not treated as new."""
    if folder is None:
        return 0
    places = [folder, *folder.glob("*"), *folder.glob("*/*/")]
    return max((place.stat().st_mtime_ns for place in places if place.exists()), default=0)


@dataclass(frozen=True)
class Data:
    """The three splits of the images, and what reads them.

    Each split is a table with a row per image: ``image`` (its name), ``path`` (its file, or its
    place in one), ``row`` (what ``read`` accepts), ``group`` (such as its patient), and its label:
    the number of its ``class``, or a column of 0 and 1 for each finding. There is no ``folder``
    where a custom reader brings its images.
    """

    train: pd.DataFrame
    valid: pd.DataFrame
    test: pd.DataFrame
    recipe: Recipe
    folder: Path | None
    reader: CatalogReader

    @property
    def splits(self) -> dict[str, pd.DataFrame]:
        return {"train": self.train, "valid": self.valid, "test": self.test}

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self.reader.classes)

    def read(self, row: int) -> np.ndarray:
        """The image in that row, uint8 (H, W, 1 or 3)."""
        return self.reader.read(int(row))

    def targets(self, table: pd.DataFrame) -> np.ndarray:
        """Findings: float32 (N, len(classes)) of 0 and 1. Classes: their numbers, int64 (N,)."""
        if self.recipe.task == MULTICLASS:
            return np.array(table["class"], np.int64)
        return np.array(table[list(self.classes)], np.float32)  # pandas' own may not be written to

    def notes(self) -> list[str]:
        """Which classes or findings cannot be learned or measured, because a split lacks them."""
        targets = {name: self.targets(split) for name, split in self.splits.items()}
        return split_notes(self.classes, targets)

    def groups(self) -> str:
        """How many groups (patients) there are, and whether any is in two splits."""
        catalog = self.reader.catalog
        at = {name: split["row"].to_numpy() for name, split in self.splits.items()}
        paths = [catalog.path(i) for i in range(len(catalog))]
        return describe_groups(catalog.groups, paths, at).text

    @property
    def format(self) -> str:
        """``png``, ``jpg``, …, ``packed``, ``memory``, ``tar``, or ``own``."""
        if self.recipe.reader == OWN:
            return "own"
        if self.reader.array is not None:
            return "packed" if isinstance(self.reader.array, np.memmap) else "memory"
        return Path(self.train["path"].iloc[0]).suffix.lstrip(".").lower()

    def as_record(self) -> dict[str, Any]:
        """The record's section ``data``."""
        made = self.folder is not None and (self.folder / "demo.json").exists()
        return {
            "folder": called(self.recipe, self.folder),
            "kind": "generated" if made else "real",
            "pixels": self.recipe.image_size,
            "format": self.format,
            "classes": list(self.classes),
            "images": {name: len(split) for name, split in self.splits.items()},
            "sha256": self.sha256,
        }

    @property
    def sha256(self) -> str:
        """Digest over names, groups, labels and sizes of all images, however they are split."""
        import pandas as pd

        images = pd.concat(self.splits).sort_values("image")
        found = run_identity.images(images, self.classes)
        if self.reader.array is not None:
            sizes = self.reader.array.shape
        elif self.format == "own":
            sizes = self.read(images["row"].iloc[0]).shape
        else:
            sizes = tuple(Path(path).stat().st_size for path in images["path"])
        found.update(str([*sizes]).encode())
        return str(found.hexdigest())

    def __reduce_ex__(self, protocol: Any) -> Any:
        # Another process reads the array again: sent there, it would be one more copy.
        if self.format == "memory":
            return load_data, (self.recipe, self.folder)
        return super().__reduce_ex__(protocol)


def fit_to_images(recipe: Recipe, folder: Path | None) -> Recipe:
    """The recipe with its crop suited to the size of the images.

    Raises:
        UserError: they are too large or too small, or of another task than the recipe.
    """
    reader = open_images(recipe, folder)
    where = called(recipe, folder)
    task = MULTILABEL if reader.task == "findings" else MULTICLASS
    if task != recipe.task:
        has = {MULTILABEL: "findings, any number of them", MULTICLASS: "classes, one"}[task]
        raise UserError(
            f"{where}: the reader {recipe.reader} gives {has} an image, and the recipe "
            f'{recipe.name} is of {recipe.task}: write task = "{task}" under [train]'
        )
    classes = tuple(reader.classes)
    if task == MULTICLASS and len(classes) < 2:
        raise UserError(
            f"{where}: has only the class '{classes[0]}': give images of at least two classes"
        )
    if recipe.metric == "top5" and len(classes) <= tasks.GUESSES:
        raise UserError(
            f"{where}: with {len(classes)} classes the right one is always among five: write "
            'metric = "top1" under [target]'
        )
    if folder is not None and recipe.planes == 3:
        packed = data_prep.is_packed(folder)
        note = read_json(folder / (manifest.PACKED_FILE if packed else manifest.PREPARED_FILE))
        if note is not None and int(note.get("channels", 1)) == 1:
            raise UserError(
                f"{where}: data-prep wrote these images in grey, but the recipe {recipe.name} asks "
                "for rgb: write them again with --rgb, or write "
                'color_mode = "grayscale" under [data]'
            )
    pixels = min(reader.read(0).shape[:2])
    most = max(LARGEST, recipe.image_size) if recipe.image_size else LARGEST_UNSIZED
    if pixels > most:
        size = recipe.image_size or LARGEST
        raise UserError(
            f"{where}: images of {pixels} px; write image_size = {pixels} under [data], or resize "
            f"them: data-prep resize {where} TARGET --size {size}"
        )
    return recipe.for_images(pixels)


def load_data(recipe: Recipe, folder: Path | None) -> Data:
    """The folder's images, split by the recipe's seed if there is no published split."""
    reader = open_images(recipe, folder)
    table, splits = reader.table(), reader.splits(recipe.seed)
    tables = {name: table.iloc[rows].reset_index(drop=True) for name, rows in splits.items()}
    return Data(**tables, recipe=recipe, folder=folder, reader=reader)


def check_images(recipe: Recipe, folder: Path | None) -> None:
    """Read every image of a folder that data_prep has not prepared, so no run stumbles later.

    Raises:
        DataError, UserError: naming the first that cannot be read, or is smaller than the crop.
    """
    if folder is not None and (data_prep.is_complete(folder) or data_prep.is_packed(folder)):
        return  # all were decoded then
    reader = open_images(recipe, folder)
    own = recipe.reader == OWN  # which need not bear threads
    if reader.array is None:
        with ThreadPoolExecutor(1 if own else None) as pool:
            for i, image in enumerate(pool.map(reader.read, range(len(reader)))):
                _check_size(image.shape, recipe, reader.catalog.path(i))
    if own:
        known = _listed(reader)
        _last.clear()  # so that the reader is made once more
        if known != _listed(open_images(recipe, folder)):
            raise UserError(
                f"{called(recipe, None)}: a second one has other targets or splits, so each "
                "framework would train on other images: draw them from a fixed seed"
            )


def _listed(reader: CatalogReader) -> list[Any]:
    splits = [rows.tolist() for rows in reader.splits().values()]
    return [list(reader.classes), reader.targets.tolist(), splits]


def _check_size(shape: tuple[int, ...], recipe: Recipe, where: str) -> None:
    side, size = min(shape[:2]), f"{where}: {shape[1]} x {shape[0]} pixels"
    if side < recipe.crop:
        raise UserError(
            f"{size} do not hold the crop of {recipe.crop} px; give all images one size"
        )
    if side > recipe.crop == recipe.image_size:  # the first image's size: no crop was asked for
        raise UserError(
            f"{size}, and the first image's shorter side has {recipe.crop}; give all images one "
            "size, or a crop under [data]"
        )
