"""Read a data folder in the NIH's ChestX-ray14 layout: a label file and images/."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from data_prep.catalog import Catalog, split_catalog
from data_prep.errors import DataError
from data_prep.files import MAX_TEXT_BYTES, read_limited
from data_prep.folder_state import is_packed, open_array
from data_prep.readers.nih_labels import FINDINGS, LABEL_FILES, parse_label_file
from data_prep.split import PARTS

if TYPE_CHECKING:
    import pandas as pd

TRAIN_VALID_FILE = "train_val_list.txt"
TEST_FILE = "test_list.txt"

#: The folders of images, in the NIH's archives and in Kaggle's.
SEARCHED = "images/, images_*/images/, images-*/images-*/ and sample/images/"


def read_catalog(
    folder: str | os.PathLike[str], *, check_images: bool = True, skip_missing: bool = False
) -> pd.DataFrame:
    """Read and check the label file of a folder in the NIH's format.

    The folder contains one of `nih_labels.LABEL_FILES`, and the images in `images/`, in
    `images_001/images/` and so on, or as in Kaggle's copies. An image `x.png` is also found as
    `x.jpg`.

    Args:
        folder: the data folder.
        check_images: raise an error if an image is missing.
        skip_missing: exclude missing images instead of raising an error.

    Returns:
        A table with one row per image, in the file's order. The columns are `image` (file name),
        `path`, `patient` (int64), `followup` (int64), and one uint8 column of 0 and 1 for each of
        `FINDINGS`.

    Raises:
        DataError: the label file is missing or invalid, or an image is missing.
    """
    import pandas as pd

    folder = Path(folder)
    file = find_label_file(folder)
    table = parse_label_file(file)
    here = list_images(folder)
    names = table["image"].tolist()
    paths = [here.get(name) or here.get(f"{name.rpartition('.')[0]}.jpg") for name in names]
    missing = [name for name, path in zip(names, paths, strict=True) if path is None]
    if missing and (check_images if not skip_missing else len(missing) == len(names)):
        raise DataError(
            f"{folder}: {len(missing):,} of the {len(names):,} images named in {file.name} are"
            f" missing, the first is {missing[0]} (searched {SEARCHED});"
            f" add them, or skip them with --skip-missing"
        )
    if skip_missing:
        table = table[[path is not None for path in paths]].reset_index(drop=True)
        paths = [path for path in paths if path is not None]
    inside = str(folder / "images") + os.sep
    found = [
        path or inside + name for path, name in zip(paths, table["image"].tolist(), strict=True)
    ]
    # Not pandas' string type, which is UTF-8; a folder's name need not be UTF-8.
    table.insert(1, "path", pd.Series(found, index=table.index, dtype=object))
    return table


def labels(catalog: pd.DataFrame) -> np.ndarray:
    """Return the labels of a catalog as an array.

    Args:
        catalog: a table from `read_catalog`, or a part of it.

    Returns:
        uint8 (images, 14) of 0 and 1, with the columns in the order of `FINDINGS`.
    """
    return np.ascontiguousarray(catalog[list(FINDINGS)].to_numpy(dtype=np.uint8))


def find_label_file(folder: str | os.PathLike[str]) -> Path:
    """Return the label file of a data folder (the first of `LABEL_FILES` that exists)."""
    folder = Path(folder)
    if not folder.is_dir():
        what = "is not a folder (unpack an archive)" if folder.exists() else "does not exist"
        raise DataError(f"{folder} {what}: name the folder with the label file and the images")
    for name in LABEL_FILES:
        if (folder / name).is_file():
            return folder / name
    raise DataError(
        f"{folder}: no label file; expected {LABEL_FILES[2]} or {LABEL_FILES[0]} (or .gz) in it"
    )


def list_images(folder: str | os.PathLike[str]) -> dict[str, str]:
    """Return the path of every image of a data folder by file name, without opening files."""
    folder = Path(folder)
    places = [folder / "images", folder / "sample" / "images"]
    for part in sorted(folder.glob("images[_-]*")):
        places += [part / "images", part / part.name, part]
    found: dict[str, str] = {}
    for place in places:
        if not place.is_dir():
            continue
        with os.scandir(place) as entries:
            for entry in entries:
                if not entry.name.startswith("."):
                    found.setdefault(entry.name, entry.path)
    return found


def catalog(folder: Path, skip_missing: bool = False, check_images: bool = True) -> Catalog:
    """Return the catalogue of a data folder, with the checks of `read_catalog`.

    `skip_missing` leaves out images that are named but missing. In a packed folder row i is image i
    of the array.
    """
    packed = is_packed(folder)
    table = read_catalog(
        folder, check_images=check_images and not packed, skip_missing=skip_missing and not packed
    )
    if packed and table["image"].tolist() != open_array(folder)[1]["names"]:
        raise DataError(
            f"{folder}: label file and packed images do not match;"
            f" pack it again with 'data-prep pack SOURCE {folder}'"
        )
    prefix = os.path.join(folder, "")  # noqa: PTH118 (which drops the separator)
    return Catalog(
        folder,
        images=table["image"].tolist(),
        sources=[path.removeprefix(prefix) for path in table["path"]],
        classes=FINDINGS,
        labels=labels(table).astype(np.int8),
        groups=table["patient"].tolist(),
    )


def official_parts(found: Catalog, seed: int = 0) -> dict[str, np.ndarray]:
    """Split a data folder by the NIH's lists in it; return the indices of each part.

    The NIH publishes no validation part, so an eighth of the patients of the training list becomes
    one, chosen by `seed`. Raises `DataError` if a list is missing or empty, an image is in both
    lists or in neither, a patient is in both, or a part has no images.
    """
    train_valid, test = found.folder / TRAIN_VALID_FILE, found.folder / TEST_FILE
    train_names, test_names = _read_list(train_valid), _read_list(test)
    if both := train_names & test_names:
        raise DataError(f"{test}: {min(both)} is also in {train_valid}; remove it from one list")
    part_of = dict.fromkeys(train_names, 0) | dict.fromkeys(test_names, PARTS.index("test"))
    if neither := [name for name in found.images if name not in part_of]:
        raise DataError(
            f"{len(neither):,} images are in neither list, the first is {neither[0]};"
            f" {train_valid} and {test} must name all"
        )
    parts = np.array([part_of[name] for name in found.images], np.int8)
    return split_catalog(replace(found, parts=parts), seed=seed)


def _read_list(file: Path) -> set[str]:
    try:
        text = read_limited(file, MAX_TEXT_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise DataError(
            f"{file}: the list is missing; download it from the NIH's page of the archives"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: cannot be read ({error})") from None
    return {line.strip() for line in io.StringIO(text, newline=None)} - {""}
