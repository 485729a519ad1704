"""A folder of small grey images: what its files hold, and what says that it is complete."""

from __future__ import annotations

import csv
import io
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from data_prep.catalog import keep_rows
from data_prep.errors import DataError
from data_prep.files import OUT_OF_SPACE, read_json, sweep, write_json, write_whole
from data_prep.png import encode_plain, square

#: What goes into prepared.json; a new number when the same command would give other pixels.
TOOL = "data_prep resize 1"

#: Formats that can be written, with the ending of their files.
FORMATS = {"png": ".png", "jpeg": ".jpg"}

#: Endings taken for images in a folder without a label file.
KINDS = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".pgm")

#: An image that could not be read: its name and why.
Reject = tuple[str, str]


def check_settings(size: int, format: str, quality: int) -> dict[str, Any]:
    """The settings that decide what a file holds, as prepared.json keeps them."""
    if format not in FORMATS:
        raise DataError(f"format '{format}' is not known; it is {' or '.join(FORMATS)}")
    if not 1 <= size <= 16384:
        raise DataError(f"size is {size}: give the pixels of a side, 1 to 16384")
    if not 1 <= quality <= 95:
        raise DataError(f"quality is {quality}: JPEG knows 1 to 95")
    settings: dict[str, Any] = {"size": size, "format": format}
    return {**settings, "quality": quality} if format == "jpeg" else settings


def begin(target: Path, settings: dict[str, Any]) -> None:
    """Take a folder for these settings, or refuse it; the caller is its `sole_writer`."""
    sweep(target)
    before = read_json(target / "prepared.json")
    if before is None and any(target.iterdir()):
        raise DataError(f"{target} holds other files; name an empty or a new folder")
    if before is not None:
        differing = [key for key in settings if before.get(key) != settings[key]]
        if differing:
            raise DataError(
                f"{target} was made with another {' and '.join(differing)}"
                f" ({', '.join(str(before.get(key)) for key in differing)});"
                " name another folder, or remove that one"
            )
    if before is None or not before.get("complete"):
        _write_note(target, {**settings, "complete": False})


def is_complete(folder: str | os.PathLike[str]) -> bool:
    """Whether `resize_folder` or `prepare_nih` came to the end of this folder."""
    note = read_json(Path(folder) / "prepared.json")
    return note is not None and bool(note.get("complete"))


def finish(
    target: Path,
    settings: dict[str, Any],
    rejected: list[Reject],
    label_file: Path | None,
    names: set[str],
) -> None:
    """Write what says that the folder is complete: rejected.csv, label file, prepared.json."""
    try:
        if rejected:
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(("image", "reason"))
            writer.writerows(rejected)
            write_whole(target / "rejected.csv", text.getvalue().encode())
        else:
            (target / "rejected.csv").unlink(missing_ok=True)
        if label_file is not None:
            kept = keep_rows(label_file, names - {name for name, _ in rejected})
            write_whole(target / label_file.name, kept)
    except OSError as error:
        images = settings["images"]
        raise DataError(full_disk(target, error, images - len(rejected), images)) from None
    _write_note(target, {**settings, "complete": True})


def target_path(target: Path, name: str, ending: str) -> str:
    """Where the image `name` of a label file goes in a target folder."""
    stem, dot, old = name.rpartition(".")
    keeps = not dot or f".{old.lower()}" not in KINDS or ending == ".png" == f".{old.lower()}"
    return os.path.join(target, "images", name if keeps else stem + ending)  # noqa: PTH118


def _write_note(target: Path, content: dict[str, Any]) -> None:
    try:
        write_json(target / "prepared.json", content)
    except OSError as error:
        raise DataError(f"{target}: cannot be written ({error.strerror})") from None


def full_disk(folder: Path, error: OSError, done: int, total: int) -> str:
    """The line for a disk that is full, or that cannot be written to for another reason."""
    kept = f"{done:,} of {total:,} images are done and kept"
    if error.errno not in OUT_OF_SPACE:
        return f"{folder}: cannot be written ({error.strerror}); {kept}"
    try:
        free = f", {shutil.disk_usage(folder).free / 1e6:,.0f} MB free"
    except OSError:
        free = ""
    return (
        f"{folder}: the disk is full{free}; {kept}:"
        " free some space and run the same command again to go on"
    )


def reason_only(error: DataError, path: str) -> str:
    """An error's text without the path it starts with."""
    return str(error).removeprefix(f"{path}: ")


def encode(image: np.ndarray, settings: dict[str, Any]) -> bytes:
    """A grey image, uint8 (height, width), as the file these settings ask for."""
    small = square(image, settings["size"])
    if settings["format"] == "png":
        return encode_plain(small)
    buffer = io.BytesIO()
    Image.fromarray(small).save(buffer, "JPEG", quality=settings["quality"])
    return buffer.getvalue()
