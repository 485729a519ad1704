"""Read what data-prep has written to a folder: the notes of its state, packed pixels, exclusions.

`prepared.json` marks a folder of resized images, `packed.json` a packed folder, each complete or
not. `left_out.csv` beside the label file lists images to exclude, with reasons:
`verify --drop-duplicates` writes this file, and everything that reads the folder's catalog respects
it. Remove a row to use the image again.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.errors import DataError
from data_prep.files import MAX_TEXT_BYTES, read_json, read_limited, write_atomic
from data_prep.manifest import REPAIR_HINT

PREPARED_FILE = "prepared.json"
PACKED_FILE = "packed.json"
IMAGES_FILE = "images.npy"
EXCLUDED_FILE = "left_out.csv"
EXCLUDED_HEADER = ["image", "reason"]

#: The types of the values in prepared.json and packed.json.
PREPARED_TYPES = {
    "tool": str,
    "size": int,
    "format": str,
    "images": int,
    "absent": int,
    "complete": bool,
    "archives": dict,
}
PACKED_TYPES = {"tool": str, "images": int, "size": int, "names": list, "complete": bool}

#: A function from the written images to label files by name; None means: remove the file.
LabelFiles = Callable[[set[str]], dict[str, bytes | None]]


def read_prepared(folder: Path) -> dict[str, Any] | None:
    """Return the contents of prepared.json, or None without one; `DataError` if it is damaged."""
    file = folder / PREPARED_FILE
    note = read_json(file, REPAIR_HINT)
    if note is None:
        return None
    needed = ("complete", "images") if note.get("complete") else ("complete",)
    types = {key: PREPARED_TYPES[key] for key in PREPARED_TYPES if key in note or key in needed}
    _check_types(file, note, types, REPAIR_HINT)
    return note


def _check_types(file: Path, note: Mapping[str, Any], types: Mapping[str, type], hint: str) -> None:
    for key, kind in types.items():
        if type(note.get(key)) is not kind:
            raise DataError(f"{file}: damaged ('{key}'); {hint}")


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
    """Return whether `pack_folder` wrote to a folder, even if it was interrupted.

    Args:
        folder: the folder; it need not exist.
    """
    return (Path(folder) / PACKED_FILE).is_file()


def open_array(folder: Path) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the images of a packed folder and the contents of packed.json."""
    again = f"pack it again with 'data-prep pack SOURCE {folder}'"
    note = read_json(folder / PACKED_FILE, again)
    if note is None:
        raise DataError(
            f"{folder}: no {PACKED_FILE}; make it with 'data-prep pack SOURCE {folder}'"
        )
    _check_types(folder / PACKED_FILE, note, PACKED_TYPES, again)
    if not note["complete"]:
        raise DataError(f"{folder}: packing was interrupted; {again}")
    if len(note["names"]) != note["images"]:
        raise DataError(f"{folder}: label file and packed images do not match; {again}")
    try:
        if not (folder / IMAGES_FILE).is_file():
            raise ValueError("no such file")
        images = np.load(folder / IMAGES_FILE, mmap_mode="r", allow_pickle=False)
    except Exception as error:
        # NumPy parses the header of the file as Python: damage may raise almost any exception.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{folder / IMAGES_FILE}: cannot be read ({reason}); {again}") from None
    shape: tuple[int, ...] = (note["images"], note["size"], note["size"])
    if note.get("channels", 1) == 3:
        shape += (3,)
    whole = isinstance(images, np.ndarray) and images.flags.c_contiguous
    if not whole or images.shape != shape or images.dtype != np.uint8:
        raise DataError(
            f"{folder / IMAGES_FILE}: not the images that {PACKED_FILE} describes; {again}"
        )
    return images, note


def drop_excluded(folder: Path, images: Sequence[str]) -> np.ndarray:
    """Return the indices of the images that the folder's list does not exclude."""
    out = read_excluded(folder)
    kept = [at for at, image in enumerate(images) if image not in out]
    if images and not kept:
        raise DataError(f"{folder / EXCLUDED_FILE}: names every image; remove it to use them")
    return np.array(kept, dtype=np.int64)


def read_excluded(folder: Path) -> dict[str, str]:
    """Return the reason for each excluded image; empty if the folder has no such file."""
    file = folder / EXCLUDED_FILE
    try:
        text = read_limited(file, MAX_TEXT_BYTES).decode("utf-8-sig")
        header, *rows = csv.reader(io.StringIO(text, newline=""), strict=True)
        if header != EXCLUDED_HEADER or any(
            len(row) != len(EXCLUDED_HEADER) for row in rows if row
        ):
            raise ValueError("expected the columns image and reason")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(
            f"{file}: cannot be read ({error}); fix the file, or remove it to use all images"
        ) from None
    return {row[0]: row[1] for row in rows if row}


def exclude_images(folder: Path, reasons: dict[str, str]) -> None:
    """Add these images, each with a reason, to the folder's list of excluded images."""
    if not reasons:
        return
    text = io.StringIO()
    rows = (read_excluded(folder) | reasons).items()
    csv.writer(text, lineterminator="\n").writerows([EXCLUDED_HEADER, *rows])
    try:
        write_atomic(folder / EXCLUDED_FILE, text.getvalue().encode(), durable=True)
    except OSError as error:
        raise DataError(f"{folder / EXCLUDED_FILE}: cannot be written ({error.strerror})") from None
