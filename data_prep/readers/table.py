"""Any CSV with a column, or a pattern of columns, that leads to an image: CheXpert's, MIMIC-CXR's,
PadChest's, one's own. What its columns mean is said in a mapping, see `data_prep.readers.mapping`.
"""

from __future__ import annotations

import csv
import difflib
import io
import os
import re
from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.catalog import NO_PART, Catalog
from data_prep.errors import DataError
from data_prep.readers import mapping
from data_prep.readers.inside import UNSAFE, check_there
from data_prep.readers.mapping import Columns, columns_in
from data_prep.readers.table_labels import Labels
from data_prep.readers.text import table_bytes
from data_prep.split import PARTS

Row = list[str]

#: How a column of parts may call them.
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
) -> Catalog:
    """The images that a CSV (or .csv.gz) in `folder` names.

    `table` is the mapping or the TOML file that has it; without, the folder's `table.toml`. With
    `check_images` every image has to be there.

    Raises `DataError`, with file, line and column, for whatever does not fit the mapping; for a
    path that leads out of the folder, also by a link; for an image that is named twice.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: name the one that the paths begin from")
    given = mapping.read(folder, table)
    labels = Labels(given)
    found = _Found(by_file="" not in given.file)
    joined = _joined(folder, given)
    for part, name in given.file.items():
        _read(folder / name, part, given, labels, joined, found)
    if not found.images:
        raise DataError(f"{folder}: no rows below the header of {' or '.join(given.file.values())}")
    images = found.images
    paths = found.paths if given.name else images
    last = folder / [*given.file.values()][-1]
    if len(set(images)) != len(images):
        raise DataError(f"{last}: the image {_twice(images)} is listed twice; leave out one row")
    if check_images:
        check_there(folder, paths, last)
    parts = np.array(found.parts, dtype=np.int8) if found.parts else None
    values = labels.values(found.kinds)
    return Catalog(folder, images, paths, labels.names, values, found.groups or None, parts)


class _Found:
    """What is gathered row by row."""

    def __init__(self, by_file: bool) -> None:
        self.by_file = by_file
        self.images: list[str] = []
        self.paths: list[str] = []
        self.groups: list[str] = []
        self.parts: list[int] = []
        self.kinds: list[int] = []


def _read(
    file: Path,
    part: str,
    given: Columns,
    labels: Labels,
    joined: dict[tuple[str, ...], Row] | None,
    found: _Found,
) -> None:
    """Add the rows of one file to what is found."""
    rows, where = _rows(file)
    header = next(rows)
    key: Callable[[Row], tuple[str, ...]] | None = None
    extra = 0
    if joined is not None:
        key = _picker(header, given.join["on"], file)
        more = joined[()]
        extra, header = len(more), header + more
    path_of = _pattern(given.path, header, file)
    name_of = _pattern(given.name, header, file) if given.name else None
    group_of = _pattern(given.group, header, file) if given.group else None
    finds = re.compile(given.group_pattern).search if given.group_pattern else None
    part_at = _column(given.part, header, file) if given.part else None
    cells_of = _picker(header, labels.columns, file)
    blank = [""] * extra
    known = labels.known
    groups: dict[str, str] = {}
    for row in rows:
        if joined is not None and key is not None:
            row = row + joined.get(key(row), blank)
        path = path_of(row)
        if UNSAFE.search(path):
            raise DataError(
                f"{where()}, column '{given.path}': the path {path!r} is not one within the folder;"
                " mend it, or the mapping"
            )
        cells = cells_of(row)
        kind = known.get(cells)
        found.kinds.append(labels.add(cells, where) if kind is None else kind)
        if name_of is not None:
            found.paths.append(path)
            path = name_of(row)
        found.images.append(path)
        if group_of is not None:
            group = group_of(row)
            if finds is not None:
                match = finds(group)
                if match is None:
                    raise DataError(
                        f"{where()}, column '{given.group}': no '{given.group_pattern}' in"
                        f" {group!r}; mend group_pattern"
                    )
                group = match[0]
            if not group:
                raise DataError(f"{where()}, column '{given.group}': empty; whose image is it?")
            found.groups.append(groups.setdefault(group, group))  # one text each, not a million
        if part_at is not None:
            code = PART_NAMES.get(row[part_at].strip().lower())
            if code is None:
                raise DataError(
                    f"{where()}, column '{given.part}': {row[part_at]!r} is no part; they are"
                    f" {', '.join(PARTS)}"
                )
            found.parts.append(code)
        elif found.by_file:
            found.parts.append(PART_NAMES[part])


def _rows(file: Path) -> tuple[Iterator[Row], Callable[[], str]]:
    """The rows of a CSV, its header first, without blank lines; and where the last one stands."""
    text = io.TextIOWrapper(io.BytesIO(table_bytes(file)), "utf-8-sig", newline="")
    reader = csv.reader(text, strict=True)

    def where() -> str:
        return f"{file}, line {reader.line_num}"

    def checked() -> Iterator[Row]:
        width = 0
        try:
            for row in reader:
                if len(row) != width:
                    if not row:
                        continue
                    if width:
                        raise DataError(f"{where()}: {len(row)} columns, the header has {width}")
                    width = len(row)
                    row = [name.strip() for name in row]
                yield row
        except csv.Error as error:
            raise DataError(f"{where()}: no comma-separated values ({error})") from None
        except UnicodeDecodeError:
            raise DataError(f"{file}: not a text file in UTF-8; save it as CSV in UTF-8") from None
        if not width:
            raise DataError(f"{file}: empty; expected a header with the names of the columns")

    return checked(), where


def _joined(folder: Path, given: Columns) -> dict[tuple[str, ...], Row] | None:
    """The rows of the second file by what joins them; under () the names of their columns."""
    if not given.join:
        return None
    file = folder / given.join["file"]
    rows, where = _rows(file)
    header = next(rows)
    key = _picker(header, given.join["on"], file)
    others = [at for at, name in enumerate(header) if name not in given.join["on"]]
    joined: dict[tuple[str, ...], Row] = {(): [header[at] for at in others]}
    for row in rows:
        if key(row) in joined:
            raise DataError(f"{where()}: {', '.join(key(row))} comes twice; leave out one row")
        joined[key(row)] = [row[at] for at in others]
    return joined


def _column(name: str, header: Row, file: Path) -> int:
    if name in header:
        return header.index(name)
    near = difflib.get_close_matches(name, header, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(header[:30])}"
    raise DataError(f"{file}, line 1: no column '{name}'; {hint}")


def _picker(header: Row, names: tuple[str, ...], file: Path) -> Callable[[Row], tuple[str, ...]]:
    """The cells of these columns, as a tuple."""
    at = [_column(name, header, file) for name in names]
    if len(at) == 1:
        only = at[0]
        return lambda row: (row[only],)
    return itemgetter(*at)


def _pattern(pattern: str, header: Row, file: Path) -> Callable[[Row], str]:
    """What a column or a pattern of columns gives for a row."""
    pieces = [
        (text, _column(name, header, file) if name else None, most)
        for text, name, most in columns_in(pattern)
    ]
    if pieces == [("", pieces[0][1], None)] and pieces[0][1] is not None:
        return itemgetter(pieces[0][1])

    def fill(row: Row) -> str:
        return "".join(text + ("" if at is None else row[at][:most]) for text, at, most in pieces)

    return fill


def _twice(images: list[str]) -> str:
    seen: set[str] = set()
    return next(name for name in images if name in seen or seen.add(name))  # type: ignore[func-returns-value]
