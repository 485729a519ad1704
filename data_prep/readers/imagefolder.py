"""Read images in a folder per class, or ImageNet's official training archive.

The folders are `train/cat/1.jpg`, `train/dog/2.jpg`, `val/cat/…`, or `cat/1.jpg` without parts. The
archive is a tar with a tar per class. Nothing is unpacked: each image is read at its offset in the
archive, so no name in the archive can reach the disk.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from data_prep.catalog import Catalog
from data_prep.errors import DataError
from data_prep.prepared_folder import IMAGE_EXTENSIONS
from data_prep.readers import nested_tar
from data_prep.readers.path_safety import UNSAFE_PATH, list_folder, refuse_outside
from data_prep.split import PARTS

#: The parts by the names of their folders.
PART_FOLDERS = {"train": 0, "val": 1, "valid": 1, "validation": 1, "test": 2}

ARCHIVE = "ILSVRC2012_img_train.tar"


def catalog(folder: Path, group: str | None = None) -> Catalog:
    """List the images of a folder of classes, or of an archive: `folder`, or `ARCHIVE` in it.

    `group` is a regular expression; the text it finds in an image's path is the group. The
    classes are the names of the folders of train, sorted; the images come in the order of names.

    Raises `DataError` for a folder without classes, a class without images, a class that train does
    not have, a link out of the folder, and an archive that is damaged or hostile.
    """
    for archive in (folder, folder / ARCHIVE):
        if archive.is_file():
            return _with_groups(nested_tar.catalog(archive), group)
    places = _part_folders(folder) or {"": None}
    classes: list[str] = []
    images: list[str] = []
    labels: list[int] = []
    parts: list[int] = []
    for place, part in sorted(places.items(), key=lambda item: item[1] or 0):
        here = _folders(folder, place)
        if not here:
            raise DataError(
                f"{folder / place}: no folder in it; a folder per class is needed (or {ARCHIVE})"
            )
        classes = classes or here
        if unknown := sorted(set(here) - set(classes)):
            raise DataError(
                f"{folder / place / unknown[0]}: a class without training images;"
                " the classes are " + ", ".join(classes[:20])
            )
        for name in here:
            found = sorted(_images(folder, os.path.join(place, name)))  # noqa: PTH118
            if not found:
                raise DataError(f"{folder / place / name}: no image in this class's folder")
            images += found
            labels += [classes.index(name)] * len(found)
            parts += [part or 0] * len(found)
    published = None if "" in places else np.array(parts, dtype=np.int8)
    made = Catalog(
        folder, images, images, tuple(classes), np.array(labels, dtype=np.int64), None, published
    )
    return _with_groups(made, group)


def _part_folders(folder: Path) -> dict[str, int | None]:
    """Return the existing folders of parts; two folders for one part are an error."""
    if not folder.is_dir():
        raise DataError(f"{folder} is neither a folder nor an archive")
    found: dict[str, int | None] = {}
    for name, part in PART_FOLDERS.items():
        if (folder / name).is_dir():
            if part in found.values():
                raise DataError(f"{folder}: two folders for the part {PARTS[part]}; keep one")
            found[name] = part
    if found and 0 not in found.values():
        raise DataError(f"{folder}: {' and '.join(found)} but no train; name the folder above it")
    return found


def _folders(folder: Path, place: str) -> list[str]:
    names = [name for name in list_folder(folder, place) if not name.startswith(".")]
    return sorted(name for name in names if (folder / place / name).is_dir())


def _images(folder: Path, place: str) -> Iterator[str]:
    """Yield paths, within the folder, of the images in a class's folder."""
    refuse_outside(folder, place)
    inner = []
    with os.scandir(folder / place) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            path = f"{place}/{entry.name}".removeprefix("/")
            if UNSAFE_PATH.search(path):
                raise DataError(
                    f"{folder / path}: rename it; control characters, a \\ and what is"
                    " not UTF-8 are not allowed in a list of images"
                )
            if entry.is_symlink():
                refuse_outside(folder, path)
            if entry.name.lower().endswith(IMAGE_EXTENSIONS):
                yield path
            elif entry.is_dir(follow_symlinks=False):
                inner.append(path)
    for path in sorted(inner):
        yield from _images(folder, path)


def _with_groups(catalog: Catalog, pattern: str | None) -> Catalog:
    if pattern is None:
        return catalog
    try:
        finds = re.compile(pattern).search
    except re.error as error:
        raise DataError(f"group {pattern!r} is no regular expression ({error})") from None
    groups = []
    for image in catalog.images:
        found = finds(image)
        if found is None:
            raise DataError(
                f"{catalog.folder / image}: no {pattern!r} in the path; fix the pattern of group"
            )
        groups.append(found[0])
    return Catalog(**{**catalog.__dict__, "groups": groups})
