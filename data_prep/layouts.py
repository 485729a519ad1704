"""Recognise the layout of a data set, for `data-prep init`.

The columns of its label file tell which published data set a folder contains. The first row and its
image tell the rest of the mapping: the folders, the images' extension and a prefix to remove. The
columns of other label files are guessed.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from data_prep.errors import DataError
from data_prep.guess_table import by_part, guess_table, image_files
from data_prep.image_decoding import IMAGE_EXTENSIONS
from data_prep.published_layouts import LAYOUTS, Layout
from data_prep.readers import load_catalog
from data_prep.readers.class_folders import FIND_CLASSES, UnclearClasses
from data_prep.readers.csv_rows import CsvRows
from data_prep.readers.nih_labels import LABEL_FILES
from data_prep.readers.path_safety import UNSAFE_PATH, LinkOutside, missing_prefix

#: Label files are searched in the folder and one level below.
LABEL_PATTERNS = ("*.csv", "*.csv.gz", "*/*.csv", "*/*.csv.gz")

#: Lists without a header.
LIST_PATTERNS = ("*.txt", "*/*.txt")

#: Folders on each level, and lists, that are tried.
MOST_SEARCHED = 200

#: Columns, folders or files that an error message lists.
MOST_LISTED = 12


class Recognised(NamedTuple):
    """The reader of a folder; for the reader `table` also the mapping of its columns."""

    layout: str
    reader: str
    mapping: dict[str, Any]
    rgb: bool


def recognise(folder: Path, options: Mapping[str, Any]) -> Recognised:
    """Return the layout of a folder; `DataError`, with the nearest way, if it is unknown.

    With other options of the reader `imagefolder` than `links`, only class folders are recognised.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: name the folder with the images and labels")
    if options.keys() - {"links"}:
        if known := _class_folders(folder, options):
            return known
        raise DataError(f"{folder}: there is only one class; name the folder with the classes")
    tables = _tables(folder)
    known, reason = _search(folder, tables, options)
    if known is None:
        raise _unknown(folder, tables, reason)
    return known


def _tables(folder: Path) -> dict[str, CsvRows]:
    return {name: CsvRows(folder / name) for name in _files(folder, LABEL_PATTERNS)}


def _search(
    folder: Path, tables: dict[str, CsvRows], options: Mapping[str, Any]
) -> tuple[Recognised | None, str]:
    """Return the layout, or None and what is in the way of the nearest layout."""
    if known := _published(folder, tables):
        return known, ""
    reason = ""
    for attempt, tell in (
        (lambda: _guessed(folder, tables), True),
        (lambda: _class_folders(folder, options), not tables),
        (lambda: _list(folder, options), True),
    ):
        try:
            if known := attempt():
                return known, ""
        except DataError as error:
            if isinstance(error, UnclearClasses | LinkOutside) and tell:
                raise
            reason = reason or (f" ({error})" if tell else "")
    return None, reason


def _files(folder: Path, patterns: Sequence[str]) -> list[str]:
    found = {file for pattern in patterns for file in folder.glob(pattern)}
    names = sorted(file for file in found if not file.name.startswith("."))
    return [file.relative_to(folder).as_posix() for file in names]


def _published(folder: Path, tables: dict[str, CsvRows]) -> Recognised | None:
    if any((folder / name).is_file() for name in LABEL_FILES):
        return Recognised("the NIH's ChestX-ray14", "nih", {}, rgb=False)
    for layout in LAYOUTS:
        names = [name for name, rows in tables.items() if set(layout.columns) <= set(rows.header)]
        if names:
            mapping = _mapping(folder, layout, names, tables)
            return Recognised(layout.name, "table", mapping, layout.rgb)
    return None


def _list(folder: Path, options: Mapping[str, Any]) -> Recognised | None:
    """Return the layout of lists without a header, which begin with the image."""
    tables = {}
    for name in _files(folder, LIST_PATTERNS)[:MOST_SEARCHED]:
        with suppress(DataError):
            first = CsvRows(folder / name).header
            count = len(first if len(first) > 1 else first[0].split())
            columns = ("image", "class", *(f"column {at}" for at in range(3, count + 1)))
            tables[name] = CsvRows(folder / name, columns=columns[:count])
    known = _guessed(folder, tables)
    if known is not None:
        found, _ = load_catalog("table", folder, table=known.mapping, **options)
        if 2 * len(found) < sum(1 for _ in image_files(folder)):
            return None  # only one part of the images, such as validation, has a list
    return known


def _guessed(folder: Path, tables: dict[str, CsvRows]) -> Recognised | None:
    mapping = guess_table(folder, tables)
    if mapping is None:
        return None
    column = mapping.get("class", mapping.get("labels"))
    what = f"classes in the column '{column}'" if column else "findings in columns"
    file = mapping["file"]
    names = file if isinstance(file, str) else " and ".join(file.values())
    return Recognised(f"{names} with {what}", "table", mapping, rgb=True)


def _class_folders(folder: Path, options: Mapping[str, Any]) -> Recognised | None:
    found, _ = load_catalog("imagefolder", folder, **options)
    if len(found.classes) < 2:
        return None
    layout = "a class in each path" if "class_pattern" in options else "a folder per class"
    inner = {Path(image).parent.name for image in found.images}
    if "class_pattern" not in options and len(inner) > 1 and not inner & {*found.classes}:
        layout += f" with folders inside (if they are the classes, {FIND_CLASSES})"
    return Recognised(layout, "imagefolder", {}, rgb=True)


def _unknown(folder: Path, tables: dict[str, CsvRows], reason: str) -> DataError:
    """Return the error of an unknown layout, with the nearest way to a layout that is known."""
    seen = [f"{name} with the columns {_listed(rows.header)}" for name, rows in tables.items()]
    there = " and ".join(seen[:3]) or (
        f"no CSV file, but {_listed(sorted(os.listdir(folder))) or 'nothing'}"  # noqa: PTH208
    )
    if next(image_files(folder), None) is None:
        return DataError(
            f"{folder}: there is {there}, and no image file; unpack archives, and write images"
            " inside other files, such as .parquet, as PNG files into a folder per class, such as"
            " train/cat/1.png"
        )
    if inner := _inner(folder):
        reason, way = "", f"run data-prep init {shlex.quote(str(inner))}"
    else:
        way = (
            "describe a CSV file in table.toml (see docs/table-toml.md)"
            if tables
            else "write a CSV file with the columns image and class"
        )
        way += (
            ", put the images in a folder per class, or find the class in each path with"
            " --class-pattern"
        )
    return DataError(f"{folder}: the layout is unknown: there is {there}{reason}; {way}")


def _inner(folder: Path) -> Path | None:
    """Return the nearest folder inside, down to four levels, whose layout is known."""
    level = [folder]
    for _ in range(4):
        level = sorted(
            inner
            for place in level
            for inner in place.iterdir()
            if inner.is_dir() and not inner.is_symlink() and not inner.name.startswith((".", "__"))
        )[:MOST_SEARCHED]
        for inner in level:
            with suppress(DataError):
                try:
                    if _search(inner, _tables(inner), {})[0]:
                        return inner
                except UnclearClasses:  # its message says more
                    return inner
    return None


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return ", ".join(names[:MOST_LISTED]) + more


def _mapping(
    folder: Path, layout: Layout, names: list[str], tables: dict[str, CsvRows]
) -> dict[str, Any]:
    """Return the keys of `table.toml`, with the paths of the images as they are on the disk."""
    first, labels = tables[names[0]], tables[names[0]]
    mapping: dict[str, Any] = {"file": by_part(folder, names)}
    if layout.joined:
        needed = {*layout.joined, *layout.others}
        second = [name for name, rows in tables.items() if needed <= set(rows.header)]
        if not second:
            raise DataError(
                f"{folder}: {layout.name} without the CSV file of its labels, with the columns"
                f" {', '.join(sorted(needed))}; put it beside {names[0]}"
            )
        mapping["join"] = {"file": second[0], "on": list(layout.joined)}
        labels = tables[second[0]]
    mapping |= layout.keys | _paths(folder, first, layout.keys["path"], len(names) > 1)
    if not {"findings", "class"} & mapping.keys():
        others = {*layout.others, *layout.joined}
        mapping["findings"] = [name for name in labels.header if name not in others]
    return mapping


def _paths(folder: Path, rows: CsvRows, pattern: str, several: bool) -> dict[str, str]:
    """Return `path` and `remove_prefix` by which the image of the first row is found."""
    row = next(rows.blocks(), [[]])[0]
    path = rows.pattern(pattern)(row) if row else ""
    if UNSAFE_PATH.search(path) or os.path.isfile(folder / path):  # noqa: PTH113
        return {"path": pattern}
    if prefix := missing_prefix(folder, path):
        return {"path": pattern, "remove_prefix": prefix}
    place, _, name = path.rpartition("/")
    found = _file_called(folder, name, place) if "{" in pattern else None
    if found is None:
        raise DataError(
            f"{rows.where(0)}: the image {path} is nowhere in {folder}; unpack the images there,"
            " and name the folder above images and labels"
        )
    inside, ending = found
    if inside != place:
        # The other images may be in folders that differ in the number at the end.
        inside = "**" if several else re.sub(r"[0-9]+(?=/|$)", "*", inside)
        pattern = f"{inside}/{pattern.rpartition('/')[2]}".lstrip("/")
    return {"path": pattern + ending}


def _file_called(folder: Path, name: str, place: str) -> tuple[str, str] | None:
    """Return folder and extension of an image file with this name, best of one in `place`."""
    found = [
        (inside, file[len(name) :])
        for inside, file in image_files(folder)
        if file.startswith(name) and file[len(name) :].lower() in ("", *IMAGE_EXTENSIONS)
    ]
    home = f"{place}/".lstrip("/")
    return min(found, key=lambda at: not f"{at[0]}/".startswith(home), default=None)
