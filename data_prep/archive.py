"""Reading images out of a tar archive that may have been made to do harm.

Nothing is extracted: images are handed over as bytes, under their bare names, so that no name,
link or device in an archive can reach the disk.
"""

from __future__ import annotations

import gzip
import os
import re
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from data_prep.errors import DataError
from data_prep.prepared import KINDS

quick_gzip: Any = gzip
#: What damage looks like to whoever reads; isal has an error of its own.
DAMAGED: tuple[type[Exception], ...] = (tarfile.TarError, EOFError, OSError, zlib.error)
try:
    from isal import igzip, isal_zlib
except ImportError:  # slower, and the same
    pass
else:
    quick_gzip = igzip
    DAMAGED = (*DAMAGED, isal_zlib.error)  # type: ignore[arg-type]  # its stub says instance

#: The NIH's largest image has about 1.2 MB.
MAX_IMAGE_BYTES = 64 << 20
MAX_MEMBERS = 1_000_000
#: PNGs do not shrink further: an archive that grows so much when opened holds something else.
MAX_GROWTH = 20

SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_. -]*")


def images_in(archive: str | os.PathLike[str]) -> Iterator[tuple[str, bytes]]:
    """Name (without folders) and bytes of each image file of a .tar.gz or .tar, in its order.

    Memory holds one image at a time. Folders and other regular files are passed over. Raises
    `DataError`, naming archive and member, for a path that leads out, a link, a device, a member
    or an archive that grows beyond all measure, a name that comes twice, and for damage.
    """
    archive = Path(archive)
    seen: set[str] = set()
    try:
        with archive.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            stream: Any = quick_gzip.open(file) if packed else file
            guard = _Guard(stream, archive, MAX_GROWTH * archive.stat().st_size + MAX_IMAGE_BYTES)
            with tarfile.open(fileobj=guard, mode="r|", bufsize=1 << 20) as members:  # type: ignore[call-overload]
                for count, member in enumerate(members):
                    if count >= MAX_MEMBERS:
                        raise DataError(f"{archive}: more than {MAX_MEMBERS:,} members; refused")
                    name = _safe_name(member, archive)
                    members.members = []  # tarfile keeps every header otherwise
                    if name is None:
                        continue
                    if name in seen:
                        raise DataError(f"{archive}: {name} comes twice; refused")
                    seen.add(name)
                    data = members.extractfile(member)
                    assert data is not None  # a regular file
                    yield name, data.read()
            while guard.read(1 << 20):  # to the end: gzip's checksum of the whole stands there
                pass
    except FileNotFoundError:
        raise DataError(f"{archive}: the archive is missing") from None
    except DAMAGED as error:
        raise DataError(
            f"{archive}: damaged or cut short ({' '.join(str(error).split())});"
            " remove it and fetch it again"
        ) from None


def _safe_name(member: tarfile.TarInfo, archive: Path) -> str | None:
    """The bare name of an image, None for what may be passed over, an error for what may not."""
    parts = member.name.replace("\\", "/").split("/")
    if member.name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0]:
        raise DataError(f"{archive}: the member {member.name!r} leads out of the folder; refused")
    if member.isdir():
        return None
    if not member.isreg():
        raise DataError(f"{archive}: the member {member.name!r} is a link or a device; refused")
    name = parts[-1]
    if not name.lower().endswith(KINDS) or name.startswith("."):
        return None
    if SAFE_NAME.fullmatch(name) is None:
        raise DataError(f"{archive}: the member {member.name!r} has an unsafe name; refused")
    if member.size > MAX_IMAGE_BYTES:
        raise DataError(f"{archive}: {name} has {member.size:,} bytes, too many for an image")
    return name


class _Guard:
    """A stream that stops when more comes out of it than an archive of images can hold."""

    def __init__(self, stream: IO[bytes], archive: Path, most: int) -> None:
        self.stream, self.archive, self.most, self.given = stream, archive, most, 0

    def read(self, size: int) -> bytes:
        data = self.stream.read(min(size, 1 << 22))
        self.given += len(data)
        if self.given > self.most:
            raise DataError(
                f"{self.archive}: grows more than {MAX_GROWTH} times when opened, which images"
                " do not; refused"
            )
        return data
