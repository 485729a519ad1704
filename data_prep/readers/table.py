"""Read the images and labels that a CSV file lists: CheXpert, MIMIC-CXR, PadChest or a custom CSV.

A column, or a pattern of columns, gives the path of an image. A mapping says what the columns mean,
see `data_prep.readers.column_mapping`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from data_prep import dicom
from data_prep.catalog import MISSING, NO_PART, Catalog
from data_prep.errors import DataError
from data_prep.readers import column_mapping
from data_prep.readers.column_mapping import ColumnMapping
from data_prep.readers.csv_rows import CsvRows
from data_prep.readers.path_safety import (
    UNSAFE_PATH,
    any_suspicious,
    check_files_exist,
    follows_links,
    resolve_wildcards,
)
from data_prep.readers.table_labels import TableLabels
from data_prep.split import PARTS

#: The parts by the texts in a column of parts.
PART_NAMES = {name: at for at, name in enumerate(PARTS)} | {
    "training": 0,
    "val": 1,
    "validate": 1,
    "validation": 1,
    "": NO_PART,
}


def catalog(
    folder: Path,
    table: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    check_images: bool = True,
    links: str = "refuse",
) -> Catalog:
    """List the images in a CSV (or .csv.gz) in `folder`.

    `table` is the mapping or its TOML file; None: the folder's `table.toml`. With `check_images`
    every image has to exist. `links` is `refuse` or `follow`, for links that lead out of the
    folder: your choice, and not the mapping's, which came with the data.

    Raises `DataError`, with file, line and column, if the CSV does not match the mapping, if a path
    leads out of the folder, also through a link, and if an image is listed twice.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: name the folder that contains the paths")
    given = column_mapping.read_mapping(folder, table)
    labels = TableLabels(given)
    second = _read_joined(folder, given)
    found = _TableColumns()
    for part, name in given.files.items():
        rows = CsvRows(folder / name, columns=given.columns)
        _read_file(rows, part, given, labels, second, found)
    if not found.images:
        raise DataError(
            f"{folder}: no rows below the header of {' or '.join(given.files.values())}"
        )
    paths = found.paths if given.name else found.images
    follow = follows_links(links)
    if any("*" in path for path in given.paths.values()):
        paths = resolve_wildcards(folder, paths, follow)
    images = found.images if given.name else paths
    last = folder / [*given.files.values()][-1]
    parts = np.array(found.parts, dtype=np.int8) if found.parts else None
    values = labels.values(found.kinds)
    listed = Catalog(folder, images, paths, labels.names, values, found.groups or None, parts)
    if len(set(images)) != len(images):
        if not given.merge_rows:
            raise DataError(
                f"{last}: the image {_first_duplicate(images)} is listed twice; remove one row, or"
                " join the findings with merge_rows = true in the mapping"
            )
        listed = _merge_rows(listed, last)
    if check_images:
        check_files_exist(folder, listed.sources, last, follow)
    if given.group == dicom.PATIENT_GROUP:
        patients = dicom.patients(folder, listed.sources)
        groups = _groups(patients, given, listed.sources.__getitem__)
        listed = replace(listed, groups=groups)
    return listed


def _merge_rows(listed: Catalog, where: Path) -> Catalog:
    """Join the rows of each image: a finding gets the highest of its labels."""
    first: dict[str, int] = {}
    for at, image in enumerate(listed.images):
        same = first.setdefault(image, at)
        for values in (listed.sources, listed.groups, listed.parts):
            if values is not None and values[same] != values[at]:
                raise DataError(f"{where}: rows of {image} differ in path, group or part; fix one")
    keep = np.array([*first.values()])
    rows = np.searchsorted(keep, [first[image] for image in listed.images])
    labels = np.full((len(keep), len(listed.classes)), MISSING, dtype=np.int8)
    np.maximum.at(labels, rows, listed.labels)
    return replace(listed.select(keep), labels=labels)


class _TableColumns:
    def __init__(self) -> None:
        self.images: list[str] = []
        self.paths: list[str] = []
        self.groups: list[str] = []
        self.parts: list[int] = []
        self.kinds: list[int] = []


class _JoinedFile:
    def __init__(self, rows: CsvRows, on: tuple[str, ...]) -> None:
        key, self.on = rows.cells(on), on
        others = [at for at, name in enumerate(rows.header) if name not in on]
        self.columns = [rows.header[at] for at in others]
        self.rows: dict[Any, list[str]] = {}
        for block in rows.blocks():
            for row in block:
                if key(row) in self.rows:
                    where = rows.where(len(self.rows))
                    raise DataError(f"{where}: {key(row)} occurs twice; remove one row")
                self.rows[key(row)] = [row[at] for at in others]


def _read_joined(folder: Path, given: ColumnMapping) -> _JoinedFile | None:
    if given.join is None:
        return None
    return _JoinedFile(CsvRows(folder / given.join.file), given.join.on)


def _read_file(
    rows: CsvRows,
    part: str,
    given: ColumnMapping,
    labels: TableLabels,
    second: _JoinedFile | None,
    found: _TableColumns,
) -> None:
    """Add the rows of one file to `found`, column by column."""
    key, blank = None, [""]
    if second is not None:
        key = rows.cells(second.on)
        blank = [""] * len(second.columns)
    blocks = rows.blocks()
    if second is not None:
        rows.header = rows.header + second.columns
    path = given.paths[part]
    path_of = rows.pattern(path)
    name_of = rows.pattern(given.name) if given.name else None
    group = None if given.group == dicom.PATIENT_GROUP else given.group
    group_of = rows.pattern(group) if group else None
    part_of = rows.pattern(given.split) if given.split else None
    cells_of = rows.cells(labels.columns)
    before = 0
    for block in blocks:
        if second is not None and key is not None:
            block = [row + second.rows.get(key(row), blank) for row in block]

        def where(at: int, column: str, before: int = before) -> str:
            return f"{rows.where(before + at)}, column '{column}'"

        paths = [path_of(row).removeprefix(given.remove_prefix or "") for row in block]
        if any_suspicious(paths):
            _refuse_unsafe(paths, partial(where, column=path))
        if name_of is not None:
            found.paths += paths
            paths = [name_of(row) for row in block]
        found.images += paths
        found.kinds += labels.kinds([cells_of(row) for row in block], where)
        if group_of is not None:
            texts = [group_of(row) for row in block]
            found.groups += _groups(texts, given, partial(where, column=given.group or ""))
        if part_of is not None:
            texts = [part_of(row).strip().lower() for row in block]
            found.parts += _parts(texts, partial(where, column=given.split or ""))
        elif part:
            found.parts += [PART_NAMES[part]] * len(block)
        before += len(block)


def _refuse_unsafe(paths: list[str], where: Callable[[int], str]) -> None:
    for at, path in enumerate(paths):
        if UNSAFE_PATH.search(path):
            raise DataError(
                f"{where(at)}: the path {path!r} is not a safe path within the folder; fix it, or"
                " cut its start with remove_prefix in the mapping"
            )


def _groups(texts: list[str], given: ColumnMapping, where: Callable[[int], str]) -> list[str]:
    """Return the group of each image; images of a group share one text object."""
    finds = re.compile(given.group_pattern).search if given.group_pattern else None
    groups: dict[str, str] = {}
    for text in set(texts):
        found = finds(text) if finds else None
        groups[text] = sys.intern(found[0] if found else "" if finds else text)
    if not all(groups.values()):
        at = next(at for at, text in enumerate(texts) if not groups[text])
        if finds:
            raise DataError(
                f"{where(at)}: no '{given.group_pattern}' in {texts[at]!r}; fix group_pattern"
            )
        raise DataError(f"{where(at)}: empty; enter the group of the image")
    return [groups[text] for text in texts]


def _parts(texts: list[str], where: Callable[[int], str]) -> list[int]:
    """Return the index in `PARTS` of each text, or `NO_PART`."""
    if unknown := set(texts) - PART_NAMES.keys():
        at = next(at for at, text in enumerate(texts) if text in unknown)
        raise DataError(f"{where(at)}: {texts[at]!r} is not a part; use {', '.join(PARTS)}")
    return [PART_NAMES[text] for text in texts]


def _first_duplicate(images: list[str]) -> str:
    seen: set[str] = set()
    return next(name for name in images if name in seen or seen.add(name))  # type: ignore[func-returns-value]
