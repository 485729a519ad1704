"""Read the images of ImageNet's official training archive: a tar with a tar per class.

Nothing is unpacked: each image is read at its offset in the archive, so no name in the archive can
reach the disk.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from data_prep.archive import Guard, damage_explained, plain_files
from data_prep.catalog import Catalog
from data_prep.errors import DataError
from data_prep.files import map_in_processes, open_regular
from data_prep.image_decoding import IMAGE_EXTENSIONS

ARCHIVE = "ILSVRC2012_img_train.tar"


class Member(NamedTuple):
    """A file in an archive: its name and the location of its bytes."""

    name: str
    offset: int
    size: int


def catalog(archive: Path) -> Catalog:
    """List the images of an archive; the class is the inner tar's name."""
    with open_regular(archive) as file:
        size = os.fstat(file.fileno()).st_size
        inner = list(_members(_Part(file, archive, 0, size), ".tar"))
    if not inner:
        raise DataError(
            f"{archive}: no tar of a class in it, as ILSVRC2012_img_train.tar has them."
            " ILSVRC2012_img_val.tar lacks the classes of its images: unpack both into"
            " train/CLASS/ and val/CLASS/, or name the training archive alone, which is split"
        )
    inner.sort()
    work = partial(_list_members, archive=str(archive))
    found = dict(pair for some in map_in_processes(work, inner, 8) for pair in some)
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


def _list_members(inner: Member, *, archive: str) -> tuple[str, list[Member]]:
    name, offset, size = inner
    with open_regular(archive) as file:
        part = _Part(file, Path(archive, name), offset, size)
        return name, list(_members(part, IMAGE_EXTENSIONS))


def _members(part: _Part, endings: str | tuple[str, ...]) -> Iterator[Member]:
    """Yield the plain files with these extensions in a tar; only the headers are read."""

    def is_wanted(name: str) -> bool:
        return name.lower().endswith(endings)

    with (
        damage_explained(part.archive),
        tarfile.open(fileobj=part, mode="r:") as members,  # type: ignore[call-overload]
    ):
        for name, member in plain_files(members, part, is_wanted):
            yield Member(name, member.offset_data, member.size)
        # For tarfile an invalid header ends an archive as its last blocks, of zeros, do.
        part.seek(members.offset)
        if part.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise DataError(f"{part.archive}: damaged or cut short; download it again")


class _Part(Guard):
    """The tar in a part of a file."""

    def __init__(self, file: BinaryIO, archive: Path, start: int, size: int) -> None:
        super().__init__(file, archive, 2 * size)  # tarfile reads some bytes twice
        self.end = start + size
        self.tell, self.seek = file.tell, file.seek
        self.seek(start)

    def read(self, size: int) -> bytes:
        return super().read(max(0, min(size, self.end - self.tell())))
