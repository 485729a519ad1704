"""Read the images of ImageNet's official training archive: a tar with a tar per class.

Nothing is unpacked: each image is read at its offset in the archive, so no name in the archive can
reach the disk.
"""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from data_prep.archive import MAX_IMAGE_BYTES, MAX_MEMBERS, SAFE_NAME
from data_prep.catalog import Catalog
from data_prep.errors import DataError
from data_prep.files import in_batches, map_in_processes, open_regular
from data_prep.image_decoding import IMAGE_EXTENSIONS

ARCHIVE = "ILSVRC2012_img_train.tar"
MAX_CLASSES = 100_000
BLOCK = tarfile.BLOCKSIZE

#: Headers before a member: PAX records for it or for all members, and GNU's long name.
EXTENDED = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME)
#: A name and times take a few hundred bytes.
MAX_EXTENDED_BYTES = 1 << 16
#: The start of a PAX record: its bytes in all, and its key.
RECORD = re.compile(rb"([0-9]{1,6}) ([^=]+)=")


class Member(NamedTuple):
    """A file in an archive: its name and the location of its bytes."""

    name: str
    offset: int
    size: int


def catalog(archive: Path) -> Catalog:
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
    skipped and all other types are refused, so there is no link to follow. A name may begin with
    the folder of the class, as in the tar of a class's folder.
    """
    seen: set[str] = set()
    at, end, long_name = start, start + size, None
    while True:
        file.seek(at)
        block = file.read(BLOCK)
        if at >= end or len(block) < BLOCK:
            raise DataError(f"{archive}: damaged or cut short; download it again")
        if block == bytes(BLOCK) and long_name is None:
            return
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except (tarfile.TarError, ValueError) as error:
            raise DataError(f"{archive}: damaged ({error}); download it again") from None
        at += BLOCK
        if header.size < 0 or at + header.size > end:
            raise DataError(f"{archive}: {header.name!r} reaches beyond the archive; refused")
        if header.type in EXTENDED and header.size <= MAX_EXTENDED_BYTES:
            long_name = _long_name(file.read(header.size), header, archive) or long_name
            at += -(-header.size // BLOCK) * BLOCK
            continue
        if header.isdir():
            long_name = None
            continue
        if header.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise DataError(
                f"{archive}: the member {header.name!r} is not a plain file (a link, a device, a"
                " sparse file); refused"
            )
        whole, long_name = long_name or header.name, None
        name = whole.removeprefix("./").removeprefix(f"{archive.stem}/")
        if SAFE_NAME.fullmatch(name) is None:
            raise DataError(f"{archive}: the member {whole!r} has an unsafe name; refused")
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


def _long_name(data: bytes, header: tarfile.TarInfo, archive: Path) -> str | None:
    """Return the name that an extended header gives to the next member, if any.

    Times, owners and the like are ignored. Raises `DataError` for records that change the bytes of
    a member: its size, or that it is sparse.
    """
    if header.type == tarfile.GNUTYPE_LONGNAME:
        return data.rstrip(b"\0").decode("utf-8", "surrogateescape")
    records: dict[bytes, bytes] = {}
    while data.strip(b"\0"):
        found = RECORD.match(data)
        size = int(found[1]) if found else 0
        if found is None or size > len(data) or not data[:size].endswith(b"\n"):
            raise DataError(f"{archive}: damaged (an extended header); download it again")
        records[found[2]] = data[found.end() : size - 1]
        data = data[size:]
    if any(key == b"size" or key.startswith(b"GNU.sparse") for key in records):
        raise DataError(
            f"{archive}: an extended header says that a member is not a plain file; refused"
        )
    name = records.get(b"path")
    return None if name is None else name.decode("utf-8", "surrogateescape")
