"""Read the images and labels that a CSV file lists: CheXpert, MIMIC-CXR, PadChest or a custom CSV.

A column, or a pattern of columns, gives the path of an image. A mapping says what the columns mean,
see docs/table-toml.md.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data_prep import dicom
from data_prep.catalog import MISSING, NO_PART, Catalog
from data_prep.errors import DataError
from data_prep.readers import column_mapping
from data_prep.readers.column_mapping import ColumnMapping, Join
from data_prep.readers.csv_rows import CsvRows, Row
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
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: name the folder that contains the paths")
    given = column_mapping.read_mapping(folder, table)
    labels = TableLabels(given)
    second = None if given.join is None else _read_joined(folder, given.join)
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


@dataclass
class _TableColumns:
    images: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    parts: list[int] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)


class _JoinedFile(NamedTuple):
    on: tuple[str, ...]
    columns: list[str]
    rows: dict[Any, list[str]]


def _read_joined(folder: Path, join: Join) -> _JoinedFile:
    rows, on = CsvRows(folder / join.file), join.on
    key, others = rows.cells(on), [at for at, name in enumerate(rows.header) if name not in on]
    joined: dict[Any, list[str]] = {}
    for row in itertools.chain.from_iterable(rows.blocks()):
        if key(row) in joined:
            raise DataError(f"{rows.where(len(joined))}: {key(row)} occurs twice; remove one row")
        joined[key(row)] = [row[at] for at in others]
    return _JoinedFile(on, [rows.header[at] for at in others], joined)


def _read_file(
    rows: CsvRows,
    part: str,
    given: ColumnMapping,
    labels: TableLabels,
    second: _JoinedFile | None,
    found: _TableColumns,
) -> None:
    """Add the rows of one file to `found`, column by column."""
    blocks = rows.blocks()
    if second is not None:
        blocks = _joined(blocks, rows.cells(second.on), second)
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


def _joined(
    blocks: Iterator[list[Row]], key: Callable[[Row], Any], second: _JoinedFile
) -> Iterator[list[Row]]:
    blank = [""] * len(second.columns)
    return ([row + second.rows.get(key(row), blank) for row in block] for block in blocks)


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
