"""Which files are to be read for a folder of small images, and which are to be written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from data_prep.errors import DataError
from data_prep.files import one_in_the_other, same_place
from data_prep.manifest import Row
from data_prep.prepared import FORMATS, KINDS, image_file
from data_prep.readers.nih import find_label_file, read_catalog
from data_prep.readers.nih_labels import LABEL_FILES


@dataclass
class Plan:
    """What is to be done: a row an image, as far as it is known before it is read."""

    rows: list[Row]
    label_file: Path | None


def make_plan(source: Path, target: Path, only_present: bool, format: str) -> Plan:
    """What resizing `source` into `target` would make; `DataError` for what cannot be done."""
    if not source.is_dir():
        what = "is not a folder" if source.exists() else "does not exist"
        raise DataError(f"{source} {what}: name a folder of images")
    if same_place(source, target):
        raise DataError(f"{target} is the source itself: name another folder to write to")
    if one_in_the_other(source, target):
        raise DataError(f"{source} and {target}: one lies inside the other; name a folder outside")
    ending = FORMATS[format]
    if any((source / name).is_file() for name in LABEL_FILES):
        catalog = read_catalog(source, only_present=only_present)
        rows = [
            Row(name, image_file(name, ending), source=os.path.relpath(path, source))
            for name, path in zip(catalog["image"], catalog["path"], strict=True)
        ]
        _no_two_alike(rows)
        return Plan(rows, find_label_file(source))
    found = sorted(_images_under(source, target))
    if not found:
        raise DataError(f"{source}: neither a label file nor an image in it ({', '.join(KINDS)})")
    rows, taken = [], _folders_of(found)
    for name in found:
        to = os.path.splitext(name)[0] + ending  # noqa: PTH122
        if to in taken:  # x.jpg beside x.png, a file or a folder
            to = name + ending
            if len(os.fsencode(os.path.basename(to))) > 255:  # noqa: PTH119
                raise DataError(f"{source / name}: its name is too long to get {ending}; rename it")
        taken.add(to)
        rows.append(Row(name, to, source=name))
    return Plan(rows, None)


def _folders_of(names: list[str]) -> set[str]:
    """The folders, within the source, that these files lie in."""
    return {os.fspath(folder) for name in names for folder in Path(name).parents}


def _no_two_alike(rows: list[Row]) -> None:
    seen: dict[str, str] = {}
    for row in rows:
        if (other := seen.setdefault(row.file, row.image)) != row.image:
            raise DataError(f"{row.image} and {other} would become one file; rename one")


def _images_under(source: Path, target: Path) -> Iterator[str]:
    """Paths within the folder, each folder once; those behind links after all others.

    So no link can lead in circles, or to what is written here.
    """
    seen = {_identity(target)} if target.exists() else set()
    starts = [os.fspath(source)]
    while starts:
        for place, folders, names in os.walk(starts.pop(0), onerror=_cannot_be_read):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            if _identity(place) in seen:
                folders.clear()
                continue
            seen.add(_identity(place))
            inner = [os.path.join(place, name) for name in folders]  # noqa: PTH118
            starts += [path for path in inner if os.path.islink(path)]  # noqa: PTH114
            for name in names:
                if name.lower().endswith(KINDS) and not name.startswith("."):
                    yield os.path.relpath(os.path.join(place, name), source)  # noqa: PTH118


def _identity(folder: str | os.PathLike[str]) -> tuple[int, int]:
    found = os.stat(folder)  # noqa: PTH116
    return found.st_dev, found.st_ino


def _cannot_be_read(error: OSError) -> None:
    raise DataError(f"{error.filename}: cannot be read ({error.strerror})") from None
