"""Read the state of a folder that data-prep has written, and packed pixels.

`prepared.json` marks a folder of resized images, `packed.json` a packed folder, each complete or
not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.errors import DataError
from data_prep.files import read_json
from data_prep.manifest import REPAIR_HINT

PREPARED_FILE = "prepared.json"
PACKED_FILE = "packed.json"
IMAGES_FILE = "images.npy"

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
