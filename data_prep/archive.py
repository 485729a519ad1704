"""Read files from a tar archive, without extracting any to the disk."""

from __future__ import annotations

import gzip
import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from data_prep.errors import DataError
from data_prep.files import open_regular

gzip_backend: Any = gzip
try:
    from isal import igzip
except ImportError:  # the standard library gives the same bytes, more slowly
    pass
else:
    gzip_backend = igzip

#: The NIH's largest image has about 1.2 MB, a batch of CIFAR-10 30.7 MB.
MAX_MEMBER_BYTES = 256 << 20


def iterate_members(
    archive: str | os.PathLike[str], wanted: Callable[[str], bool]
) -> Iterator[tuple[str, bytes]]:
    """Yield bare name and bytes of each file of a .tar or .tar.gz whose bare name is `wanted`.

    Memory holds one file at a time. Links, devices and all other members are skipped. Raises
    `DataError`, naming the archive, if it is missing or damaged, or if a file is too large.
    """
    archive = Path(archive)
    try:
        with open_regular(archive) as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            stream: Any = gzip_backend.open(file) if packed else file
            with tarfile.open(fileobj=stream, mode="r|", bufsize=1 << 20) as members:
                for member in members:
                    members.members = []  # type: ignore[attr-defined]  # tarfile keeps every header otherwise
                    name = member.name.rpartition("/")[2]
                    if not member.isreg() or not wanted(name):
                        continue
                    if not 0 <= member.size <= MAX_MEMBER_BYTES:
                        raise DataError(f"{archive}: {name} has {member.size:,} bytes, too many")
                    data = members.extractfile(member)
                    assert data is not None  # a regular file
                    yield name, data.read()
            while packed and stream.read(1 << 20):  # to gzip's checksum at the end
                pass
    except FileNotFoundError:
        raise DataError(
            f"{archive}: the archive is missing; check the path or download it"
        ) from None
    except DataError:
        raise
    except Exception as error:
        # On damaged headers tarfile raises ValueError, KeyError, RecursionError and more.
        text = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"{archive}: damaged or cut short ({text}); remove it and download it again"
        ) from None
