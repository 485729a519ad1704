"""Plan a resize: list the images of the source and the files to write in the target."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from data_prep.catalog import Catalog, ending, passed_over_text
from data_prep.errors import DataError
from data_prep.files import is_nested, is_same_path
from data_prep.folder_state import LabelFiles, is_packed
from data_prep.image_decoding import IMAGE_EXTENSIONS
from data_prep.manifest import Row
from data_prep.prepared_folder import FORMATS, target_file
from data_prep.readers import labels_csv, load_catalog, nih
from data_prep.readers.nih_labels import LABEL_FILES, label_files


@dataclass
class ResizePlan:
    """The images to write, one row per image, before any image is read."""

    rows: list[Row]
    label_files: LabelFiles | None
    folder: Path
    kind: str = "file"
    passed_over: Mapping[str, int] = field(default_factory=dict)
    only_class: str = ""
    """The class if there is just one, so that nothing can be learned."""


def list_source_images(
    source: Path, reader: str | None, options: Mapping[str, Any], skip_missing: bool = False
) -> tuple[Catalog, Callable[[Mapping[str, str] | None, set[str]], dict[str, bytes | None]]]:
    """List the images of a data folder in the NIH's format, or of any other reader.

    The second result is a function from the file of each image (None: packed) and the written
    images to the label files to write.
    """
    _refuse_packed(source)
    if reader is None or reader == "nih":
        file = nih.find_label_file(source)
        return nih.catalog(source, skip_missing), lambda files, ready: label_files(file, ready)
    found, _ = load_catalog(reader, source, **options)
    return found, partial(labels_csv.encode_label_files, found)


def _refuse_packed(source: Path) -> None:
    if is_packed(source):
        raise DataError(
            f"{source} is a packed folder, one array without files: name the folder it was"
            " packed from"
        )


def plan_resize(
    source: Path,
    target: Path,
    skip_missing: bool,
    format: str,
    reader: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> ResizePlan:
    """Plan to resize `source` into `target`; `DataError` if this is impossible."""
    if not source.is_dir() and (reader is None or not source.is_file()):
        what = "is not a folder (unpack an archive)" if source.exists() else "does not exist"
        raise DataError(f"{source} {what}: name a folder of images")
    if is_same_path(source, target):
        raise DataError(f"{target} is the source itself: name another folder to write to")
    if is_nested(source, target):
        raise DataError(f"{source} and {target}: one lies inside the other; name a folder outside")
    ending = FORMATS[format]
    _refuse_packed(source)
    if reader is not None or any((source / name).is_file() for name in LABEL_FILES):
        found, labels_for = list_source_images(source, reader, options or {}, skip_missing)
        rows = [
            Row(name, target_file(name, ending), source=place)
            for name, place in zip(found.images, found.sources, strict=True)
        ]
        _refuse_equal_files(rows)
        files = {row.image: row.file for row in rows}
        return ResizePlan(
            rows,
            partial(labels_for, files),
            found.folder,
            found.kind,
            found.passed_over,
            found.classes[0] if found.task == "classes" and len(found.classes) == 1 else "",
        )
    passed_over: Counter[str] = Counter()
    names = sorted(_find_images(source, target, passed_over))
    if not names:
        seen = f"; {passed_over_text(passed_over)}" if passed_over else ""
        raise DataError(
            f"{source}: no label file and no image ({', '.join(IMAGE_EXTENSIONS)}){seen}; name a"
            " folder of images"
        )
    rows = []
    taken = {os.fspath(folder) for name in names for folder in Path(name).parents}
    for name in names:
        to = os.path.splitext(name)[0] + ending  # noqa: PTH122
        if to in taken:  # x.jpg beside x.png, a file or a folder
            to = name + ending
            if len(os.fsencode(os.path.basename(to))) > 255:  # noqa: PTH119
                raise DataError(f"{source / name}: its name is too long to get {ending}; rename it")
        taken.add(to)
        rows.append(Row(name, to, source=name))
    return ResizePlan(rows, None, source, passed_over=passed_over)


def _refuse_equal_files(rows: list[Row]) -> None:
    seen: dict[str, str] = {}
    for row in rows:
        if (other := seen.setdefault(row.file, row.image)) != row.image:
            raise DataError(f"{row.image} and {other} would be written to one file; rename one")


def _find_images(source: Path, target: Path, passed_over: Counter[str]) -> Iterator[str]:
    """Yield image paths within the folder, each folder once, linked folders last.

    Therefore no link can lead in circles or into the target. All other files are counted by ending.
    """
    seen = {_folder_id(target)} if target.exists() else set()
    starts = [os.fspath(source)]
    while starts:
        for place, folders, names in os.walk(starts.pop(0), onerror=_raise_unreadable):
            folders[:] = sorted(name for name in folders if not name.startswith((".", "__MACOSX")))
            if _folder_id(place) in seen:
                folders.clear()
                continue
            seen.add(_folder_id(place))
            inner = [os.path.join(place, name) for name in folders]  # noqa: PTH118
            starts += [path for path in inner if os.path.islink(path)]  # noqa: PTH114
            for name in names:
                if name.startswith("."):
                    continue
                if name.lower().endswith(IMAGE_EXTENSIONS):
                    yield os.path.relpath(os.path.join(place, name), source)  # noqa: PTH118
                else:
                    passed_over[ending(name)] += 1


def _folder_id(folder: str | os.PathLike[str]) -> tuple[int, int]:
    found = os.stat(folder)  # noqa: PTH116
    return found.st_dev, found.st_ino


def _raise_unreadable(error: OSError) -> None:
    raise DataError(f"{error.filename}: cannot be read ({error.strerror})") from None
