"""Read images from a tar archive that may be hostile.

Nothing is extracted to the disk: images are returned as bytes, under their bare file names. So no
name, link or device in an archive can reach the disk.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from data_prep.errors import DataError
from data_prep.files import open_regular
from data_prep.image_decoding import IMAGE_EXTENSIONS

gzip_backend: Any = gzip
try:
    from isal import igzip
except ImportError:  # the standard library gives the same bytes, more slowly
    pass
else:
    gzip_backend = igzip

#: The NIH's largest image has about 1.2 MB.
MAX_IMAGE_BYTES = 64 << 20
MAX_MEMBERS = 1_000_000
#: PNGs do not shrink further: an archive that grows so much when opened holds something else.
MAX_EXPANSION = 20
READ_SIZE = 1 << 20
#: Bytes from the end of one member to the next: headers of some 100 bytes and the read buffer.
#: `tarfile` would keep headers in memory however long they are.
MAX_HEADER_BYTES = 3 * READ_SIZE

#: Short enough for every file system, with an ending more.
SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_. -]{0,239}")


def iterate_images(archive: str | os.PathLike[str]) -> Iterator[tuple[str, bytes]]:
    """Yield name (without folders) and bytes of each image file of a .tar.gz or .tar, in order."""
    return iterate_members(archive, lambda name: name.lower().endswith(IMAGE_EXTENSIONS))


def iterate_members(
    archive: str | os.PathLike[str], wanted: Callable[[str], bool]
) -> Iterator[tuple[str, bytes]]:
    """Yield bare name and bytes of each file whose bare name is `wanted`, in the archive's order.

    Memory holds one file at a time. Folders and other regular files are skipped. Raises
    `DataError`, naming archive and member, for a path that leads out, a link, a device, a member
    or an archive that grows beyond all measure, a name that comes twice, and for damage.
    """
    archive = Path(archive)
    with damage_explained(archive), open_regular(archive) as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        stream: Any = gzip_backend.open(file) if packed else file
        guard = Guard(stream, archive, MAX_EXPANSION * archive.stat().st_size + MAX_IMAGE_BYTES)
        seen: set[str] = set()
        with tarfile.open(fileobj=guard, mode="r|", bufsize=READ_SIZE) as members:  # type: ignore[call-overload]
            for count, member in enumerate(members):
                if count >= MAX_MEMBERS:
                    raise DataError(f"{archive}: more than {MAX_MEMBERS:,} members; refused")
                name = _safe_name(member, archive, wanted)
                if not 0 <= member.size <= guard.most:
                    raise DataError(
                        f"{archive}: {member.name!r} claims {member.size:,} bytes, more than can be"
                        " in it; refused"
                    )
                guard.allow(member.size + MAX_HEADER_BYTES)
                members.members = []  # tarfile keeps every header otherwise
                if name is None:
                    continue
                if name in seen:
                    raise DataError(f"{archive}: {name} occurs twice; refused")
                seen.add(name)
                data = members.extractfile(member)
                assert data is not None  # a regular file
                yield name, data.read()
        guard.allow(MAX_HEADER_BYTES)
        while guard.read(READ_SIZE):  # to the end: gzip's checksum of the whole stands there
            pass


@contextlib.contextmanager
def damage_explained(archive: Path) -> Iterator[None]:
    """Convert the errors of opening and reading a tar archive to `DataError`, naming it."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(
            f"{archive}: the archive is missing; check the path or download it"
        ) from None
    except DataError:
        raise
    except Exception as error:
        # OSError, zlib.error, EOFError and TarError have a clear text. On hostile headers tarfile
        # also raises ValueError, KeyError, RecursionError and more, whose texts are unclear.
        is_unclear = isinstance(error, ValueError | LookupError | RuntimeError | TypeError)
        text = " ".join(str(error).split()) or type(error).__name__
        reason = "an invalid header" if is_unclear else text
        raise DataError(
            f"{archive}: damaged or cut short ({reason}); remove it and download it again"
        ) from None


def _safe_name(member: tarfile.TarInfo, archive: Path, wanted: Callable[[str], bool]) -> str | None:
    """Return the bare name of a wanted file, or None for a member to skip."""
    parts = member.name.replace("\\", "/").split("/")
    if member.name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0]:
        raise DataError(f"{archive}: the member {member.name!r} points outside the folder; refused")
    if member.isdir():
        return None
    if not member.isreg() or member.issparse():
        raise DataError(
            f"{archive}: the member {member.name!r} is a link, a device or sparse; refused"
        )
    name = parts[-1]
    if not wanted(name) or name.startswith("."):
        return None
    if SAFE_NAME.fullmatch(name) is None:
        raise DataError(f"{archive}: the member {member.name!r} has an unsafe name; refused")
    if member.size > MAX_IMAGE_BYTES:
        raise DataError(f"{archive}: {name} has {member.size:,} bytes, too many for an image")
    return name


class Guard:
    """A stream that raises an error when it returns more bytes than an archive of images can hold.

    The limits are `most` bytes in total, and between two members as many bytes as `allow` says.
    """

    def __init__(self, stream: IO[bytes], archive: Path, most: int) -> None:
        self.stream, self.archive, self.most, self.given = stream, archive, most, 0
        self.allow(MAX_HEADER_BYTES)

    def allow(self, more: int) -> None:
        self.until = self.given + more

    def read(self, size: int) -> bytes:
        data = self.stream.read(min(size, 1 << 22))
        self.given += len(data)
        if self.given > self.most:
            raise DataError(
                f"{self.archive}: expands to more than {MAX_EXPANSION} times its size when opened,"
                " which images do not; refused"
            )
        if self.given > self.until:
            raise DataError(f"{self.archive}: contains megabytes that belong to no file; refused")
        return data
