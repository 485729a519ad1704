"""Guess what the columns of a label file mean, for `data-prep init`.

The column whose texts are names of image files gives the path. The class is in a column with a
usual name, or in the only column that is left; columns of 0 and 1 are findings.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from data_prep.errors import DataError
from data_prep.image_decoding import IMAGE_EXTENSIONS
from data_prep.readers.class_folders import LAST_FOLDER
from data_prep.readers.csv_rows import CsvRows, Row
from data_prep.readers.path_safety import UNSAFE_PATH
from data_prep.readers.table import PART_NAMES
from data_prep.split import PARTS

#: Names of a column of classes, without case, spaces, _ and -; the first is preferred.
CLASS_COLUMNS = (
    *("label", "labels", "class", "classname", "classid", "category", "tags", "species", "breed"),
    *("diagnosis", "dx", "level", "grade", "target"),
)
GROUP_COLUMNS = ("patient", "patientid", "subject", "subjectid", "lesionid")

#: Files with these names give guesses or parts, and no labels.
NO_LABELS = re.compile("submission|partition", re.IGNORECASE)

#: Texts of columns of findings, and the keys of the mapping that they need.
FINDINGS: tuple[tuple[set[str], dict[str, Any]], ...] = (
    ({"0", "1", "0.0", "1.0"}, {}),
    ({"-1", "1"}, {"negative": ["-1"], "uncertain": ["?"]}),
)

#: Rows whose images are looked for, next to one of each block.
SAMPLES = 20

Places = dict[str, list[tuple[str, str]]]


def guess_table(folder: Path, tables: dict[str, CsvRows]) -> dict[str, Any] | None:
    """Return the mapping of the file, or of one file per part, with the most rows; or None."""
    seen: dict[str, _Seen] = {}
    for name, rows in tables.items():
        if not NO_LABELS.search(name) and len({*rows.header}) == len(rows.header):
            with suppress(DataError):
                seen[name] = _Seen(rows)
    places = _find_images(folder, {text for one in seen.values() for text in one.wanted})
    alike: dict[tuple[str, ...], dict[str, str]] = {}
    for name, one in seen.items():
        column, pattern = _path(name, one, places)
        if column:
            alike.setdefault((column, *one.header), {})[name] = pattern
    found: list[tuple[bool, int, dict[str, Any]]] = []
    for (column, *_), patterns in alike.items():
        files = {name: seen[name] for name in patterns}
        if mapping := _mapping(folder, column, patterns, files):
            columns = tables[next(iter(files))].columns
            keys = {"columns": list(columns)} if columns else {}
            found.append((*mapping[:2], mapping[2] | keys))
    return max(found, key=lambda one: one[:2], default=(False, 0, None))[2]


def by_part(folder: Path, names: list[str]) -> str | dict[str, str]:
    """Return the only name, or the name for each part; `DataError` if no part is in a name."""
    if len(names) == 1:
        return names[0]
    parts: dict[str, str] = {}
    for name in names:
        part = _part(Path(name).name) or _part(name)
        if not part or part in parts:
            raise DataError(
                f"{folder}: {', '.join(names)} have the same columns; keep one of them in the"
                f" folder, or one for each of {', '.join(PARTS)}"
            )
        parts[part] = name
    return parts


def _part(name: str) -> str:
    return next((part for part in PARTS if part[:3] in name.lower()), "")


class _Seen:
    """The rows of a label file as far as a guess needs them."""

    def __init__(self, rows: CsvRows) -> None:
        self.header = rows.header
        self.count = 0
        self.values: list[set[str]] = [set() for _ in rows.header]
        self.samples: list[Row] = []
        self.distinct: list[int] = []
        for block in rows.blocks():
            columns = [*zip(*block, strict=True)]
            if not self.count:
                self.samples += block[:: max(1, len(block) // SAMPLES)]
                self.distinct = [
                    at for at, texts in enumerate(columns) if len({*texts}) == len(texts)
                ]
            self.samples.append(block[0])
            self.count += len(block)
            for known, texts in zip(self.values, columns, strict=True):
                known.update(text.strip() for text in texts)

    @property
    def wanted(self) -> Iterable[str]:
        return (row[at].rpartition("/")[2] for row in self.samples for at in self.distinct)


def _find_images(folder: Path, wanted: set[str]) -> Places:
    """Return folder and extension of the image files that have these names."""
    found: Places = {}
    for inside, name in image_files(folder):
        stem, ending = os.path.splitext(name)  # noqa: PTH122 (a name, not a path)
        for text, rest in ((name, ""), (stem, ending)):
            if text in wanted:
                found.setdefault(text, []).append((inside, rest))
    return found


def image_files(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield folder and name of each image file in a folder, at any depth, in the order of names."""
    for at, folders, names in os.walk(folder):
        folders[:] = sorted(inner for inner in folders if not inner.startswith((".", "__MACOSX")))
        inside = Path(at).relative_to(folder).as_posix().removeprefix(".")
        for name in sorted(names):
            if name.lower().endswith(IMAGE_EXTENSIONS):
                yield inside, name


def _path(name: str, seen: _Seen, places: Places) -> tuple[str, str]:
    """Return the column with the images' names and the pattern of their paths, or empty texts."""
    home = Path(name).parent.as_posix().removeprefix(".")
    part = _part(Path(name).name) or _part(name) or "train"

    def rank(place: tuple[str, str]) -> tuple[bool, bool, bool, int]:
        inside, ending = place
        return (
            not inside.startswith(home),
            part[:3] not in inside.lower(),
            ending != "",
            len(inside),
        )

    for at in sorted(seen.distinct, key=lambda at: "/" not in seen.samples[0][at]):
        column, texts = seen.header[at], [row[at] for row in seen.samples]
        if re.search("[{}:]", column) or not column or any(map(UNSAFE_PATH.search, texts)):
            continue
        found: list[set[tuple[str, str]]] = []
        for text in texts:
            start, _, file = text.rpartition("/")
            found.append(
                {
                    (inside[: len(inside) - len(start)].rstrip("/"), ending)
                    for inside, ending in places.get(file, [])
                    if f"/{inside}".endswith(f"/{start}" if start else "")
                }
            )
        if not all(found):
            continue
        if shared := set.intersection(*found):
            inside, ending = min(shared, key=rank)
        else:
            nearest = [min(each, key=rank) for each in found]
            inside = os.path.commonpath([place for place, _ in nearest]) + "/**"
            inside, ending = inside.lstrip("/"), nearest[0][1]
        pattern = f"{inside}/{{{column}}}{ending}".lstrip("/")
        return column, column if pattern == f"{{{column}}}" else pattern
    return "", ""


def _mapping(
    folder: Path, image: str, patterns: dict[str, str], files: dict[str, _Seen]
) -> tuple[bool, int, dict[str, Any]] | None:
    """Return whether the class is certain, the number of rows and the mapping, or None."""
    names, seen = [*files], [*files.values()]
    header, rows = seen[0].header, sum(one.count for one in seen)
    values = {
        name: set[str]().union(*(one.values[at] for one in seen)) for at, name in enumerate(header)
    }
    rest = [name for name in header if name not in (image, "")]
    mapping: dict[str, Any] = {}
    split = [name for name in rest if {*map(str.lower, values[name])} <= PART_NAMES.keys() - {""}]
    if split and len(names) == 1:
        mapping["split"] = split[0]
    group = [name for name in rest if _plain(name) in GROUP_COLUMNS]
    if group:
        mapping["group"] = group[0]
    rest = [name for name in rest if name not in (*split[:1], *group)]
    labels = _labels(image, rest, values, rows)
    if labels is None:
        return None
    certain, keys = labels
    file = by_part(folder, names)
    path: str | dict[str, str] = patterns[names[0]]
    if isinstance(file, dict) and len({*patterns.values()}) > 1:
        path = {part: patterns[name] for part, name in file.items()}
    return certain, rows, {"file": file, "path": path} | mapping | keys


def _labels(
    image: str, rest: list[str], values: dict[str, set[str]], rows: int
) -> tuple[bool, dict[str, Any]] | None:
    """Return whether the columns of the labels are certain, and the keys of the mapping."""
    named = [name for name in rest if _plain(name) in CLASS_COLUMNS]
    named = [name for name in named if not any(map(re.compile(r"[\[{]").match, values[name]))]
    if named:
        column = min(named, key=lambda name: CLASS_COLUMNS.index(_plain(name)))
        return (True, _class(column, values[column])) if len(values[column]) > 1 else None
    for texts, keys in FINDINGS:
        findings = [name for name in rest if values[name] <= texts]
        if len(findings) > 1:
            return True, {"findings": findings} | keys
    if not rest and all("/" in text for text in values[image]):
        return True, {"class": image, "class_pattern": LAST_FOLDER}
    if len(rest) == 1 and 1 < len(values[rest[0]]) < rows:
        return False, _class(rest[0], values[rest[0]])
    return None


def _class(column: str, values: set[str]) -> dict[str, Any]:
    """Return the keys for a class, or for several names in a cell, which have fewer parts."""
    for separator in ("|", " "):
        names = {name for value in values for name in value.split(separator)} - {""}
        if 1 < len(names) < len(values):
            return {"labels": column, "separator": separator, "findings": sorted(names)}
    return {"class": column}


def _plain(name: str) -> str:
    return re.sub("[ _-]", "", name.lower())
