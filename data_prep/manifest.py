"""Read and write manifest.csv, which lists the source and the SHA-256 of each image in a folder.

The file has one row per image, in the order of the label file. While images are being written,
rows are appended at the end, and the last row of an image counts. In a packed folder `bytes` and
`sha256` describe the image's place in images.npy.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from data_prep.errors import DataError
from data_prep.files import read_limited, write_atomic

MANIFEST = "manifest.csv"

#: About four million images; the whole NIH set takes 30 MB.
MAX_BYTES = 1 << 30

REPAIR_HINT = "remove it and run again, which writes the images again"


class Row(NamedTuple):
    """One image of the manifest; `problem` gives the reason if there is no image."""

    image: str
    """The name in the label file, or the path within a folder without label file."""
    file: str = ""
    """The written file, relative to the folder; empty if there is no image."""
    bytes: int = 0
    sha256: str = ""
    source: str = ""
    """The source of the image: the archive, or the path within the source folder."""
    source_sha256: str = ""
    source_state: str = ""
    """Bytes and times of the source file; while unchanged, the file is not read again."""
    problem: str = ""


def sha256_of(data: bytes | memoryview) -> str:
    """Return the SHA-256 as hexadecimal digits, as `sha256sum` prints it."""
    return hashlib.sha256(data).hexdigest()


def file_state(path: str | os.PathLike[str]) -> str:
    """Return bytes and times of a file; every write changes at least the last time."""
    found = os.stat(path)  # noqa: PTH116 (speed)
    return f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"


def read_manifest(folder: Path, *, partial: bool = False) -> dict[str, Row]:
    """Return the rows of a folder by image; empty without a manifest.

    `partial` is for an incomplete folder: rows are read up to the first damaged row, because a
    power cut or a kill may damage the last rows. Without `partial`, damage raises `DataError`.
    """
    file = folder / MANIFEST
    try:
        text = _text(file)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror}); {REPAIR_HINT}") from None
    rows: dict[str, Row] = {}
    try:
        for row in _rows(text):
            rows[row.image] = row
    except (ValueError, csv.Error) as error:
        if not partial:
            raise DataError(
                f"{file}, row {len(rows) + 2}: damaged ({error}); {REPAIR_HINT}"
            ) from None
    return rows


def write_manifest(folder: Path, rows: Iterable[Row]) -> None:
    """Write a folder's manifest atomically and wait until it is on the disk."""
    write_atomic(folder / MANIFEST, encode_manifest(rows), durable=True)


def encode_manifest(rows: Iterable[Row]) -> bytes:
    """Return the bytes of a manifest with these rows."""
    return _encoded([Row._fields, *rows])


@contextlib.contextmanager
def appending(folder: Path, rows: dict[str, Row]) -> Iterator[Callable[[Iterable[Row]], None]]:
    """Write these rows and yield a function that appends rows to the dictionary and the file."""
    write_manifest(folder, rows.values())
    with (folder / MANIFEST).open("ab", buffering=0) as file:

        def add(more: Iterable[Row]) -> None:
            more = list(more)
            rows.update((row.image, row) for row in more)
            view = memoryview(_encoded(more))
            while view:
                view = view[file.write(view) or 0 :]

        yield add


def file_matches(folder: str | os.PathLike[str], row: Row, *, thorough: bool) -> bool:
    """Return whether the row's file has the size in the row and, if `thorough`, the SHA-256."""
    path = os.path.join(folder, row.file)  # noqa: PTH118 (speed)
    try:
        found = os.stat(path)  # noqa: PTH116 (speed)
        if not stat.S_ISREG(found.st_mode) or found.st_size != row.bytes:
            return False
        return not thorough or sha256_of(Path(path).read_bytes()) == row.sha256
    except OSError:
        return False


def _rows(text: str) -> Iterator[Row]:
    whole = text[: text.rfind("\n") + 1]  # without a row that was being written at a kill
    reader = csv.reader(io.StringIO(whole, newline=""), strict=True)
    if next(reader, None) != list(Row._fields):
        raise ValueError("not the header of a manifest")
    for cells in reader:
        if len(cells) != len(Row._fields) or not cells[0] or not cells[2].isdecimal():
            raise ValueError("no image, no number of bytes, or too few or too many columns")
        image, file, size, *others = cells
        yield Row(image, file, int(size), *others)
    if whole != text:
        raise ValueError("cut short")


def _encoded(rows: Iterable[Iterable[object]]) -> bytes:
    text = io.StringIO()
    plain = csv.writer(text, lineterminator="\n")
    quoted = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for row in rows:
        # The csv module leaves a lone \r as it is, and then reads it as the end of the row.
        (quoted if any("\r" in str(cell) for cell in row) else plain).writerow(row)
    return text.getvalue().encode("utf-8", "surrogateescape")


def _text(file: Path) -> str:
    return read_limited(file, MAX_BYTES).decode("utf-8", "surrogateescape")
