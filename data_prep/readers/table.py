"""Read the images and labels that a CSV file lists; a mapping says what its columns mean."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from data_prep.catalog import MISSING, NO_SPLIT, UNCERTAIN, Catalog
from data_prep.errors import DataError, did_you_mean
from data_prep.readers import column_mapping
from data_prep.readers.column_mapping import ColumnMapping
from data_prep.readers.csv_file import CsvFile
from data_prep.readers.path_safety import UNSAFE_PATH, locate_files, resolve_wildcards
from data_prep.split import SPLITS

#: The splits by the texts in a column of splits.
SPLIT_NAMES = {name: at for at, name in enumerate(SPLITS)} | {
    "training": 0,
    "val": 1,
    "validate": 1,
    "validation": 1,
    "": NO_SPLIT,
}

#: The labels by the texts in a column of a finding, in lower case and with a decimal point.
CODES = (
    dict.fromkeys(("1", "1.0", "true", "yes"), 1)
    | dict.fromkeys(("0", "0.0", "false", "no"), 0)
    | dict.fromkeys(("-1", "-1.0"), UNCERTAIN)
    | dict.fromkeys(("", "nan"), MISSING)
)


def catalog(
    folder: Path,
    table: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    check_images: bool = True,
) -> Catalog:
    """List the images in a CSV (or .csv.gz) in `folder`."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: name the folder that contains the paths")
    given = column_mapping.read_mapping(folder, table)
    found = pd.concat(
        [_read_file(folder, split, given) for split in given.files], ignore_index=True
    )
    if found.empty:
        raise DataError(f"{folder / next(iter(given.files.values()))}: no rows below the header")
    paths = found["path"].tolist()
    last = folder / [*given.files.values()][-1]
    if "*" in given.path:
        paths = resolve_wildcards(folder, paths)
    if check_images:
        paths = locate_files(folder, paths, last)
    images = found["name"].tolist() if given.name else paths
    classes, values = _labels(found["label"], given)
    listed = Catalog(
        folder,
        images,
        paths,
        classes,
        values,
        [sys.intern(group) for group in found["group"]] if "group" in found else None,
        found["split"].to_numpy(np.int8) if "split" in found else None,
    )
    if len(set(images)) != len(images):
        listed = _merge_rows(listed, last, given)
    return listed


def _read_file(folder: Path, split: str, given: ColumnMapping) -> pd.DataFrame:
    """Return path, name, group, split and label of the rows of one file."""
    file = CsvFile(folder / given.files[split])
    paths = file.pattern(given.path).str.replace("\\", "/", regex=False)
    paths = paths.str.removeprefix(given.remove_prefix or "")
    unsafe = "is not a safe path within the folder; fix it, or cut its start with remove_prefix"
    file.refuse(given.path, paths.str.contains(UNSAFE_PATH), unsafe, paths)
    columns = {"path": paths, "label": _label_codes(file, given)}
    if given.name is not None:
        columns["name"] = file.pattern(given.name)
    if given.group is not None:
        columns["group"] = _groups(file, given)
    if given.split is not None:
        texts = file.pattern(given.split).str.strip().str.lower()
        fix = f"is not a split; use {', '.join(SPLITS)}"
        file.refuse(given.split, ~texts.isin(SPLIT_NAMES), fix, texts)
        columns["split"] = texts.map(SPLIT_NAMES)
    elif split:
        columns["split"] = pd.Series(SPLIT_NAMES[split], index=paths.index)
    return pd.DataFrame(columns)


def _groups(file: CsvFile, given: ColumnMapping) -> pd.Series:
    assert given.group is not None
    texts = groups = file.pattern(given.group)
    if given.group_pattern:
        finds = re.compile(given.group_pattern).search
        groups = texts.map({text: (finds(text) or [""])[0] for text in texts.unique()})
    file.refuse(given.group, groups == "", "names no group; fix it, or group_pattern", texts)
    return groups


def _label_codes(file: CsvFile, given: ColumnMapping) -> pd.Series:
    """Return the class of each row as a text, or its findings as a tuple of codes."""
    if given.class_:
        cells = file.column(given.class_)  # as the mapping has them, or else without spaces
        classes = cells.where(cells.isin(given.classes), cells.str.strip())
        bad = ~classes.isin(given.classes) if given.classes else classes == ""
        file.refuse(given.class_, bad, "is not one of the classes; fix the cell", classes)
        return classes
    if given.labels:
        return named_findings(file, given)
    codes = {}
    fix = f"is none of {', '.join(filter(None, CODES))}; fix the cell"
    for name in given.findings:
        texts = file.column(name)
        known = {text: finding_code(text) for text in texts.unique()}
        file.refuse(name, texts.map(known).isna(), fix, texts)
        codes[name] = texts.map(known).astype(np.int8)
    return pd.Series([*zip(*codes.values(), strict=True)], index=file.table.index, dtype=object)


def named_findings(file: CsvFile, given: ColumnMapping, advice: str = "") -> pd.Series:
    """Return the codes of a column of names; `advice` ends the error of an unknown name."""
    assert given.labels is not None
    cells = file.column(given.labels)
    known: dict[str, tuple[int, ...]] = {}
    advice = advice or 'or set handle_unknown = "ignore"'
    for cell in cells.unique():
        try:
            known[cell] = _names(cell, given, advice)
        except ValueError as error:
            at = int((cells == cell).to_numpy().argmax())
            raise DataError(f"{file.where(at)}, column '{given.labels}': {error}") from None
    return cells.map(known)


def finding_code(cell: str) -> int | None:
    """Return the label of a cell of a finding, or None if the cell is none."""
    return CODES.get(cell.strip().lower().replace(",", "."))


def _names(cell: str, given: ColumnMapping, advice: str) -> tuple[int, ...]:
    """Return the codes of the findings in a cell; ValueError for an unknown name."""
    if not cell.strip():
        return (MISSING,) * len(given.findings)
    names = {name for name in _split(cell) if name}
    for name in sorted(names - set(given.findings) - set(given.no_finding)):
        if given.handle_unknown == "error":
            hint = did_you_mean(name, given.findings, advice)
            raise ValueError(f"{name!r} is not one of the findings; {hint}")
    if names & set(given.no_finding) and names & set(given.findings):
        none = min(names & set(given.no_finding))
        raise ValueError(f"{none!r} beside a finding; fix the row")
    return tuple(int(finding in names) for finding in given.findings)


def _split(cell: str) -> list[str]:
    """Return the names in a cell, also of a list in Python's notation, which is not executed."""
    if not cell.strip().startswith("["):
        return [name.strip() for name in cell.split("|")]
    try:
        names = ast.literal_eval(cell.strip())
        return [name.strip() for name in names]
    except (ValueError, SyntaxError, AttributeError, MemoryError, RecursionError, TypeError):
        raise ValueError(f"{cell!r} is not a list of names in quotes") from None


def _labels(labels: pd.Series, given: ColumnMapping) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the classes or findings, and the labels in the form of a catalogue."""
    codes, kinds = pd.factorize(labels)
    if not given.class_:
        return given.findings, np.array([*kinds], dtype=np.int8)[codes]
    classes = given.classes or tuple(sorted(kinds))
    place = {name: at for at, name in enumerate(classes)}
    return classes, np.array([place[name] for name in kinds], dtype=np.int64)[codes]


def _merge_rows(listed: Catalog, where: Path, given: ColumnMapping) -> Catalog:
    """Join the rows of each image: a finding gets the highest of its labels."""
    rows, names = pd.factorize(np.array(listed.images, dtype=object))
    keep = np.unique(rows, return_index=True)[1]
    if not given.merge_rows:
        twice = names[np.bincount(rows).argmax()]
        fix = "remove one row, or join the findings with merge_rows = true in the mapping"
        raise DataError(f"{where}: the image {twice} is listed twice; {fix}")
    first: Sequence[int] = keep[rows].tolist()
    for values in (listed.sources, listed.groups, listed.splits):
        if values is not None:
            for at, same in enumerate(first):
                if values[same] != values[at]:
                    what = f"rows of {listed.images[at]} differ in path, group or split"
                    raise DataError(f"{where}: {what}; fix one")
    labels = np.full((len(keep), len(listed.classes)), MISSING, dtype=np.int8)
    np.maximum.at(labels, rows, listed.labels)
    return replace(listed.select(keep), labels=labels)
