"""The state of a folder that data-prep writes: its note, its manifest, and packed pixels.

`prepared.json` marks a folder of resized images, `packed.json` a packed folder, each complete or
not. `manifest.csv` lists each image, in the order of the label file. While images are being
written, rows are appended at the end, and the last row of an image counts.
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
from typing import Any, NamedTuple, Required, TypedDict

import msgspec
import numpy as np

from data_prep.errors import DataError
from data_prep.files import read_json, read_limited, write_atomic

MANIFEST = "manifest.csv"
PREPARED_FILE = "prepared.json"
PACKED_FILE = "packed.json"
IMAGES_FILE = "images.npy"

#: About four million images; the whole NIH set takes 30 MB.
MAX_BYTES = 1 << 30

REPAIR_HINT = "remove it and run again, which writes the images again"


class Row(NamedTuple):
    """One image of the manifest; `problem` gives the reason if there is no image."""

    image: str
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

    In an incomplete folder (`partial`), rows are read up to the first that a kill has damaged.
    """
    file = folder / MANIFEST
    rows: dict[str, Row] = {}
    try:
        for row in _rows(read_limited(file, MAX_BYTES).decode("utf-8", "surrogateescape")):
            rows[row.image] = row
    except FileNotFoundError:
        pass
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror}); {REPAIR_HINT}") from None
    except (ValueError, csv.Error) as error:
        if not partial:
            where = f"{file}, row {len(rows) + 2}"
            raise DataError(f"{where}: damaged ({error}); {REPAIR_HINT}") from None
    return rows


def write_manifest(folder: Path, rows: Iterable[Row]) -> None:
    """Write a folder's manifest atomically and wait until it is on the disk."""
    write_atomic(folder / MANIFEST, encoded([Row._fields, *rows]), durable=True)


@contextlib.contextmanager
def appending(folder: Path, rows: dict[str, Row]) -> Iterator[Callable[[Iterable[Row]], None]]:
    """Write these rows and yield a function that appends rows to the dictionary and the file."""
    write_manifest(folder, rows.values())
    with (folder / MANIFEST).open("ab", buffering=0) as file:

        def add(more: Iterable[Row]) -> None:
            more = list(more)
            rows.update((row.image, row) for row in more)
            view = memoryview(encoded(more))
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


def encoded(rows: Iterable[Iterable[object]]) -> bytes:
    """Return the bytes of these rows of a manifest."""
    text = io.StringIO()
    plain = csv.writer(text, lineterminator="\n")
    quoted = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for row in rows:
        # The csv module leaves a lone \r as it is, and then reads it as the end of the row.
        (quoted if any("\r" in str(cell) for cell in row) else plain).writerow(row)
    return text.getvalue().encode("utf-8", "surrogateescape")


#: A function from the written images to label files by name; None means: remove the file.
LabelFiles = Callable[[set[str]], dict[str, bytes | None]]


class Prepared(TypedDict, total=False):
    """The contents of prepared.json that are read; `images` only where it is complete."""

    complete: Required[bool]
    images: int
    archives: dict[str, int]


class Packed(TypedDict):
    """The contents of packed.json that are read."""

    complete: bool
    tool: str
    images: int
    size: int
    names: list[str]


def _read_note(file: Path, kind: Any, hint: str) -> dict[str, Any] | None:
    note = read_json(file, hint)
    try:
        if note is not None:
            msgspec.convert(note, kind)
    except msgspec.ValidationError as error:
        raise DataError(f"{file}: damaged ({error}); {hint}") from None
    return note


def read_prepared(folder: Path) -> dict[str, Any] | None:
    """Return the contents of prepared.json, or None without one; `DataError` if it is damaged."""
    return _read_note(folder / PREPARED_FILE, Prepared, REPAIR_HINT)


def is_complete(folder: str | os.PathLike[str]) -> bool:
    """Return whether `resize_folder` or `prepare_nih` has completed a folder.

    Args:
        folder: the folder; it need not exist.

    Raises:
        DataError: the folder's `prepared.json` is damaged.
    """
    note = read_prepared(Path(folder))
    return note is not None and note["complete"]


def is_packed(folder: str | os.PathLike[str]) -> bool:
    """Return whether a folder is packed.

    Args:
        folder: the folder; it need not exist.
    """
    return (Path(folder) / PACKED_FILE).is_file()


def open_array(folder: Path) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the images of a packed folder and the contents of packed.json."""
    again = f"pack it again with 'data-prep pack SOURCE {folder}'"
    note = _read_note(folder / PACKED_FILE, Packed, again)
    if note is None:
        raise DataError(f"{folder}: no {PACKED_FILE}; {again}")
    if not note["complete"]:
        raise DataError(f"{folder}: packing was interrupted; {again}")
    if len(note["names"]) != note["images"]:
        raise DataError(f"{folder}: label file and packed images do not match; {again}")
    shape = (note["images"], note["size"], note["size"], *[3] * (note.get("channels", 1) == 3))
    try:
        images = np.load(folder / IMAGES_FILE, mmap_mode="r", allow_pickle=False)
        if images.shape != shape or images.dtype != np.uint8 or not images.flags.c_contiguous:
            raise ValueError(f"not the images that {PACKED_FILE} describes")
    except Exception as error:
        # NumPy parses the header of the file as Python: damage may raise almost any exception.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{folder / IMAGES_FILE}: cannot be read ({reason}); {again}") from None
    return images, note
