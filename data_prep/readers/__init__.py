"""Read published image data sets of several formats through one small interface.

A **reader** is any object with

    classes    the names of the classes, or of the findings
    targets    classes: integers (images,), each below len(classes)
               findings: 0 and 1 (images, len(classes))
    splits()    a mapping of "train", "valid" and "test" to indices of images
    read(i)    image i as uint8 (height, width, channels), 1 channel (grey) or 3 (RGB)

The readers of data_prep are functions from a folder to a `Catalog`. A new format is a module with a
function `catalog(folder, **options)` and a line in `READERS`.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from data_prep.catalog import Catalog, Policy
from data_prep.errors import DataError, did_you_mean
from data_prep.manifest import is_packed, open_array
from data_prep.readers import cifar10, labels_csv
from data_prep.readers.catalog_reader import CatalogReader
from data_prep.readers.path_safety import is_utf8
from data_prep.split import SPLITS

#: The names of the readers: modules of this package with a function `catalog`.
READERS = ("nih", "table", "imagefolder", "cifar10")


class Reader(Protocol):
    """The interface of every reader; see above."""

    classes: Sequence[str]
    targets: np.ndarray

    def splits(self) -> Mapping[str, np.ndarray]:
        """Return the indices of each split's images."""

    def read(self, i: int) -> np.ndarray:
        """Return image i, uint8 (height, width, 1 or 3)."""


def open_reader(
    name: str,
    folder: str | os.PathLike[str],
    *,
    channels: int = 3,
    uncertain: Policy = "zero",
    missing: Policy = "zero",
    seed: int = 0,
    shares: Sequence[float] = (0.7, 0.1, 0.2),
    valid: float = 0.125,
    **options: Any,
) -> CatalogReader:
    """Open a data set of any supported format, published or prepared.

    Args:
        name: the format: `nih`, `table`, `imagefolder` or `cifar10`.
        folder: the data folder.
        channels: 1 for grey images, 3 for RGB.
        uncertain: an uncertain label is `zero`, `one`, or excludes the image (`ignore`).
        missing: the same for a finding without a label.
        seed: of the split, if no split was published.
        shares: fractions of the groups for train, valid and test, if no split was published.
        valid: fraction of the train groups that become valid, if no valid split was published.
        options: `table` (a mapping or its file) for `table`; `group`, `class_pattern` and `exclude`
            for `imagefolder`; `skip_missing` and `check_images` for `nih`.

    Returns:
        A reader with `classes`, `targets`, `splits()` and `read(i)`, and `table()`, which lists the
        images. `read(i)` returns uint8 (height, width, channels).

    Raises:
        DataError: the format or an option is unknown, or the data set is invalid.
    """
    if channels not in (1, 3):
        raise DataError(f"channels is {channels}; use 1 for grey or 3 for RGB")
    catalog, array = load_catalog(name, folder, **options)
    return CatalogReader(
        catalog,
        array,
        channels=channels,
        uncertain=uncertain,
        missing=missing,
        split={"seed": seed, "shares": tuple(shares), "valid": valid},
    )


def load_catalog(
    name: str | None, folder: str | os.PathLike[str], **options: Any
) -> tuple[Catalog, np.ndarray | None]:
    """Return the catalogue of a folder, and the pixels of all images if they are in one array.

    Without the name of a reader, the folder is in the NIH's format or was written by data-prep.
    """
    folder = Path(folder)
    if name not in (None, *READERS):
        hint = did_you_mean(str(name), READERS, f"use one of {', '.join(READERS)}")
        raise DataError(f"there is no reader '{name}'; {hint}")
    if labels_csv.has_labels_csv(folder):
        return labels_csv.catalog(folder, name or "table")
    name = name or "nih"
    read: Callable[..., Catalog] = importlib.import_module(f"{__name__}.{name}").catalog
    known = [*inspect.signature(read).parameters][1:]
    for option in options:
        if option not in known:
            there = ", ".join(known) or "none"
            raise DataError(f"the reader {name} has no option '{option}'; its options are {there}")
    if not folder.exists():
        raise DataError(f"{folder} does not exist: name the folder with the images")
    catalog = read(folder, **options)
    array = open_array(folder)[0] if is_packed(folder) else None
    if name == "cifar10":
        array = cifar10.read_all_images(catalog)
    return catalog, array


def check_reader(reader: Any, where: str) -> None:
    """Check a custom reader, and read its first image.

    Args:
        reader: an object with `classes`, `targets`, `splits()` and `read(i)`.
        where: a name for the error message, such as `mine.py:Reader`.

    Raises:
        DataError: a member is missing, or a value has the wrong type, shape or range.
    """
    for name in ("classes", "targets", "splits", "read"):
        if not hasattr(reader, name):
            raise DataError(
                f"{where}: has no '{name}'; a reader has classes, targets, splits, read"
            )
    classes = list(reader.classes)
    named = all(isinstance(name, str) and name for name in classes)
    if not (classes and named and len(set(classes)) == len(classes) and is_utf8("".join(classes))):
        raise DataError(f"{where}: classes are {classes!r}; give names in UTF-8, and none twice")
    targets = np.asarray(reader.targets)
    images = len(targets) if targets.ndim else 0
    findings = targets.ndim == 2 and targets.shape[1] == len(classes)
    if not images or targets.dtype.kind not in "iub" or not (findings or targets.ndim == 1):
        raise DataError(
            f"{where}: targets are {targets.dtype} {targets.shape}; give one integer per"
            f" image, or 0 and 1 of the shape (images, {len(classes)})"
        )
    most = 1 if findings else len(classes) - 1
    if targets.min() < 0 or targets.max() > most:
        raise DataError(
            f"{where}: targets go from {targets.min()} to {targets.max()}; they must be 0 to {most}"
        )
    splits = reader.splits()
    if not isinstance(splits, Mapping) or set(splits) != {*SPLITS}:
        raise DataError(f"{where}: splits() must give a mapping with train, valid and test")
    seen = np.zeros(images, dtype=np.int64)
    for name, indices in splits.items():
        at = np.asarray(indices)
        if at.ndim != 1 or not len(at) or at.dtype.kind not in "iu":
            raise DataError(f"{where}: the split {name} must be a list of indices, and not empty")
        if at.min() < 0 or at.max() >= images:
            raise DataError(f"{where}: the split {name} has indices outside of 0 to {images - 1}")
        np.add.at(seen, at, 1)
    if seen.max() > 1:
        raise DataError(f"{where}: image {int(seen.argmax())} is in the splits more than once")
    first = reader.read(0)
    shape: tuple[int, ...] = getattr(first, "shape", ())
    if getattr(first, "dtype", None) != np.uint8 or len(shape) != 3 or shape[2] not in (1, 3):
        kind = f"{first.dtype} {shape}" if hasattr(first, "dtype") else type(first).__name__
        raise DataError(f"{where}: read(0) gives {kind}; it must be uint8 (height, width, 1 or 3)")
