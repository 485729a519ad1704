"""Read images in a folder per class, or ImageNet's official training archive.

The folders are `train/cat/1.jpg`, `train/dog/2.jpg`, `val/cat/…`, or `cat/1.jpg` without parts. The
archive is a tar with a tar per class. Nothing is unpacked: each image is read at its offset in the
archive, so no name in the archive can reach the disk.
"""

from __future__ import annotations

import os
import re
import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from data_prep import dicom
from data_prep.archive import MAX_IMAGE_BYTES, MAX_MEMBERS, SAFE_NAME
from data_prep.catalog import Catalog, ending, passed_over_text
from data_prep.errors import DataError
from data_prep.files import in_batches, map_in_processes, open_regular
from data_prep.image_decoding import IMAGE_EXTENSIONS
from data_prep.readers.path_safety import UNSAFE_PATH, list_folder, refuse_outside
from data_prep.split import PARTS

#: The parts by the names of their folders.
PART_FOLDERS = {"train": 0, "val": 1, "valid": 1, "validation": 1, "test": 2}

ARCHIVE = "ILSVRC2012_img_train.tar"
MAX_CLASSES = 100_000
BLOCK = tarfile.BLOCKSIZE


def catalog(folder: Path, group: str | None = None) -> Catalog:
    """List the images of a folder of classes, or of an archive: `folder`, or `ARCHIVE` in it.

    `group` is a regular expression; the text it finds in an image's path is the group. The group
    `dicom:PatientID` is the patient in the header. The classes are the names of the folders of
    train, sorted; the images come in the order of names.

    Raises `DataError` for a folder without classes, a class without images, a class that train does
    not have, a link out of the folder, and an archive that is damaged or hostile.
    """
    for archive in (folder, folder / ARCHIVE):
        if archive.is_file():
            return _with_groups(_archive_catalog(archive), group)
    places = _part_folders(folder) or {"": None}
    classes: list[str] = []
    images: list[str] = []
    labels: list[int] = []
    parts: list[int] = []
    passed_over: Counter[str] = Counter()
    for place, part in sorted(places.items(), key=lambda item: item[1] or 0):
        here = _folders(folder, place)
        if not here:
            raise DataError(
                f"{folder / place}: contains no folder; it needs one per class (or {ARCHIVE})"
            )
        classes = classes or here
        if unknown := sorted(set(here) - set(classes)):
            raise DataError(
                f"{folder / place / unknown[0]}: a class without training images;"
                " the classes are " + ", ".join(classes[:20])
            )
        for name in here:
            other: Counter[str] = Counter()
            found = sorted(_images(folder, os.path.join(place, name), other))  # noqa: PTH118
            if not found:
                seen = f" ({passed_over_text(other)})" if other else ""
                raise DataError(f"{folder / place / name}: no image in this class's folder{seen}")
            passed_over += other
            images += found
            labels += [classes.index(name)] * len(found)
            parts += [part or 0] * len(found)
    published = None if "" in places else np.array(parts, dtype=np.int8)
    made = Catalog(
        folder,
        images,
        images,
        tuple(classes),
        np.array(labels, dtype=np.int64),
        None,
        published,
        passed_over=passed_over,
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


def _images(folder: Path, place: str, passed_over: Counter[str]) -> Iterator[str]:
    """Yield paths, within the folder, of a class's images; count all other files by ending."""
    refuse_outside(folder, place)
    inner = []
    with os.scandir(folder / place) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            path = f"{place}/{entry.name}".removeprefix("/")
            if UNSAFE_PATH.search(path):
                raise DataError(
                    f"{folder / path}: rename it; control characters, a \\ and bytes"
                    " outside UTF-8 are not allowed in a list of images"
                )
            if entry.is_symlink():
                refuse_outside(folder, path)
            if entry.name.lower().endswith(IMAGE_EXTENSIONS):
                yield path
            elif entry.is_dir(follow_symlinks=False):
                inner.append(path)
            else:
                passed_over[ending(path)] += 1
    for path in sorted(inner):
        yield from _images(folder, path, passed_over)


def _with_groups(catalog: Catalog, pattern: str | None) -> Catalog:
    if pattern is None:
        return catalog
    if pattern == dicom.PATIENT_GROUP and catalog.kind == "file":
        return replace(catalog, groups=dicom.patients(catalog.folder, catalog.sources))
    try:
        finds = re.compile(pattern).search
    except re.error as error:
        raise DataError(f"group {pattern!r} is not a regular expression ({error})") from None
    groups = []
    for image in catalog.images:
        found = finds(image)
        if found is None:
            raise DataError(
                f"{catalog.folder / image}: no {pattern!r} in the path; fix the pattern of group"
            )
        groups.append(found[0])
    return replace(catalog, groups=groups)


class Member(NamedTuple):
    """A file in an archive: its name and the location of its bytes."""

    name: str
    offset: int
    size: int


def _archive_catalog(archive: Path) -> Catalog:
    """List the images of an archive; the class is the inner tar's name.

    Only headers are read. Raises `DataError`, naming archive and member, for anything but plain
    files with plain names, for a member that exceeds the archive, for a name that occurs twice and
    for damage.
    """
    with open_regular(archive) as file:
        size = os.fstat(file.fileno()).st_size
        inner = list(_members(file, archive, 0, size, ".tar", MAX_CLASSES))
    if not inner:
        raise DataError(
            f"{archive}: no tar of a class in it, as ILSVRC2012_img_train.tar has them."
            " ILSVRC2012_img_val.tar lacks the classes of its images: unpack both into"
            " train/CLASS/ and val/CLASS/, or name the training archive alone, which is split"
        )
    inner.sort()
    jobs = [(member, str(archive)) for member in inner]
    found: dict[str, list[Member]] = {}
    for some in map_in_processes(_list_members, in_batches(jobs, 8)):
        found |= some
    images, sources, labels = [], [], []
    for at, member in enumerate(inner):
        of_class = member.name.removesuffix(".tar")
        if not found[member.name]:
            raise DataError(f"{archive}: no image in {member.name}")
        for name, offset, size in sorted(found[member.name]):
            images.append(f"{of_class}/{name}")
            sources.append(f"{archive.name}@{offset}+{size}")
            labels.append(at)
    classes = tuple(member.name.removesuffix(".tar") for member in inner)
    values = np.array(labels, dtype=np.int64)
    return Catalog(archive.parent, images, sources, classes, values, kind="member")


def _list_members(jobs: Sequence[tuple[Member, str]]) -> dict[str, list[Member]]:
    found = {}
    for (name, offset, size), archive in jobs:
        with open_regular(archive) as file:
            where = Path(archive, name)
            found[name] = list(_members(file, where, offset, size, IMAGE_EXTENSIONS, MAX_MEMBERS))
    return found


def _members(
    file: BinaryIO,
    archive: Path,
    start: int,
    size: int,
    endings: str | tuple[str, ...],
    most: int,
) -> Iterator[Member]:
    """Yield the plain files with these extensions in a tar that is part of a file.

    The function reads only the headers, one after the other. Plain files are used, folders are
    skipped and all other types are refused, so there is no link to follow.
    """
    seen: set[str] = set()
    at, end = start, start + size
    while True:
        file.seek(at)
        block = file.read(BLOCK)
        if at >= end or len(block) < BLOCK:
            raise DataError(f"{archive}: damaged or cut short; download it again")
        if block == bytes(BLOCK):
            return
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except (tarfile.TarError, ValueError) as error:
            raise DataError(f"{archive}: damaged ({error}); download it again") from None
        at += BLOCK
        if header.size < 0 or at + header.size > end:
            raise DataError(f"{archive}: {header.name!r} reaches beyond the archive; refused")
        if header.isdir():
            continue
        if header.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise DataError(
                f"{archive}: the member {header.name!r} is not a plain file (a link, a device, an"
                " extended header); refused"
            )
        name = header.name.removeprefix("./")
        if SAFE_NAME.fullmatch(name) is None:
            raise DataError(f"{archive}: the member {header.name!r} has an unsafe name; refused")
        if name.lower().endswith(endings):
            if name in seen:
                raise DataError(f"{archive}: {name} occurs twice; refused")
            seen.add(name)
            if len(seen) > most:
                raise DataError(f"{archive}: more than {most:,} members; refused")
            if endings is IMAGE_EXTENSIONS and header.size > MAX_IMAGE_BYTES:
                raise DataError(f"{archive}: {name} has {header.size:,} bytes, too many; refused")
            yield Member(name, at, header.size)
        at += -(-header.size // BLOCK) * BLOCK
