"""Read a data folder in the NIH's ChestX-ray14 layout: a label file and images/."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd

from data_prep.catalog import Catalog
from data_prep.errors import DataError
from data_prep.folder_state import EXCLUDED_FILE, is_packed, open_array, read_excluded
from data_prep.readers.nih_labels import FINDINGS, LABEL_FILES, parse_label_file


def read_catalog(
    folder: str | os.PathLike[str],
    *,
    check_images: bool = True,
    skip_missing: bool = False,
) -> pd.DataFrame:
    """Read a data folder's label file into a checked table, one row per image, in the file's order.

    A data folder contains one of `LABEL_FILES`, and the images in `images/` or, as the NIH's
    archives unpack, in `images_001/images/` to `images_012/images/`. An image `x.png` is also found
    as `x.jpg`, which `resize --format jpeg` writes. Images named in the folder's `left_out.csv` are
    left out. A missing image is an error, unless `check_images` is False, or `skip_missing` leaves
    out its row.

    The columns are `image` (the `Image Index`), `path`, `patient` (int64), `followup` (int64), then
    a uint8 column of 0 and 1 for each of `FINDINGS`, in that order.
    """
    folder = Path(folder)
    file = find_label_file(folder)
    table = parse_label_file(file)
    if out := read_excluded(folder):
        table = table[~table["image"].isin(out)].reset_index(drop=True)
        if table.empty:
            raise DataError(f"{folder / EXCLUDED_FILE}: names every image; remove it to use them")
    here = list_images(folder)
    names = table["image"].tolist()
    paths = [here.get(name) or here.get(_as_jpeg(name)) for name in names]
    missing = [name for name, path in zip(names, paths, strict=True) if path is None]
    if missing and skip_missing:
        keep = np.array([path is not None for path in paths])
        if not keep.any():
            raise DataError(
                f"{folder}: none of the {len(names):,} images named in {file.name} is there"
                f" (looked in images/ and images_*/images/); put the images beside the label file"
            )
        table, paths = table[keep].reset_index(drop=True), [p for p in paths if p is not None]
    elif missing and check_images:
        raise DataError(
            f"{folder}: {len(missing):,} of the {len(names):,} images named in {file.name} are"
            f" missing, the first is {missing[0]} (looked in images/ and images_*/images/);"
            f" add them, or skip them with --skip-missing"
        )
    inside = str(folder / "images") + os.sep
    found = [
        path or inside + name for path, name in zip(paths, table["image"].tolist(), strict=True)
    ]
    # Not pandas' string type, which is UTF-8; a folder's name need not be UTF-8.
    table.insert(1, "path", pd.Series(found, index=table.index, dtype=object))
    return table


def labels(catalog: pd.DataFrame) -> np.ndarray:
    """Return the labels of a catalog as uint8 (images, 14), columns in the order of `FINDINGS`."""
    return np.ascontiguousarray(catalog[list(FINDINGS)].to_numpy(dtype=np.uint8))


def find_label_file(folder: str | os.PathLike[str]) -> Path:
    """Return the label file of a data folder (the first of `LABEL_FILES` that exists)."""
    folder = Path(folder)
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
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
    places = [folder / "images"]
    for part in sorted(folder.glob("images_*")):
        places += [part / "images", part]
    found: dict[str, str] = {}
    for place in places:
        if not place.is_dir():
            continue
        with os.scandir(place) as entries:
            for entry in entries:
                if not entry.name.startswith("."):
                    found.setdefault(entry.name, entry.path)
    return found


def _as_jpeg(name: str) -> str:
    return f"{name.rpartition('.')[0]}.jpg"


def open_packed(folder: str | os.PathLike[str]) -> tuple[np.ndarray, pd.DataFrame]:
    """Open a packed folder in the NIH's format; `data_prep.open_reader` opens all formats.

    Returns the images, a read-only memory map of uint8 (images, size, size), or (images, size,
    size, 3) in colour, and their catalog; row i of the catalog belongs to image i.
    """
    folder = Path(folder)
    images, names = open_array(folder)
    catalog = read_catalog(folder, check_images=False)
    if catalog["image"].tolist() != names:
        raise DataError(
            f"{folder}: label file and packed images do not match;"
            f" pack it again with 'data-prep pack SOURCE {folder}'"
        )
    return images, catalog


def catalog(folder: Path, skip_missing: bool = False, check_images: bool = True) -> Catalog:
    """Return the catalogue of a data folder, with the checks of `read_catalog`.

    `skip_missing` leaves out images that are named but missing. In a packed folder row i is image i
    of the array.
    """
    if is_packed(folder):
        table = open_packed(folder)[1]
    else:
        table = read_catalog(folder, check_images=check_images, skip_missing=skip_missing)
    prefix = os.path.join(folder, "")  # noqa: PTH118 (which drops the separator)
    return Catalog(
        folder,
        images=table["image"].tolist(),
        sources=[path.removeprefix(prefix) for path in table["path"]],
        classes=FINDINGS,
        labels=labels(table).astype(np.int8),
        groups=table["patient"].tolist(),
    )
