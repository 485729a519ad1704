"""Write a folder of resized images with its metadata file prepared.json, which marks completion."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import shutil
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from data_prep import manifest, png
from data_prep.errors import DataError, printable
from data_prep.files import (
    DISK_FULL_ERRORS,
    read_limited,
    remove_temporary_files,
    sync_filesystem,
    write_atomic,
    write_json,
)
from data_prep.folder_state import PREPARED_FILE, LabelFiles, read_prepared
from data_prep.image_decoding import IMAGE_EXTENSIONS, note_levels
from data_prep.manifest import MANIFEST, Row
from data_prep.readers import catalog_reader

#: Tool name in prepared.json; the number changes if the same command would give other pixels.
TOOL = "data_prep resize 1"

#: Formats that can be written, with the ending of their files.
FORMATS = {"png": ".png", "jpeg": ".jpg"}

#: Treatments of an image that is not square.
RESIZE_MODES = ("stretch", "center-crop")

#: An image that could not be read: its name and why.
Rejection = tuple[str, str]


class PreviousState(NamedTuple):
    """The contents of a target folder at the start of a command."""

    rows: dict[str, Row]
    complete: bool
    note: dict[str, Any]


#: Settings that prepared.json contains only if they differ from the default.
OPTIONAL_SETTINGS = ("channels", "resize_mode", "reader")


def check_settings(
    size: int, format: str, quality: int, channels: int = 1, resize_mode: str = "stretch"
) -> dict[str, Any]:
    """Check the settings that determine the pixels and return them as in prepared.json."""
    if channels not in (1, 3):
        raise DataError(f"channels is {channels}; use 1 for grey or 3 for RGB")
    if resize_mode not in RESIZE_MODES:
        raise DataError(f"resize_mode '{resize_mode}' is unknown; use {' or '.join(RESIZE_MODES)}")
    if format not in FORMATS:
        raise DataError(f"format '{format}' is unknown; use {' or '.join(FORMATS)}")
    if not 1 <= size <= 16384:
        raise DataError(f"size is {size}; use 1 to 16384 pixels")
    if not 1 <= quality <= 95:
        raise DataError(f"quality is {quality}; use 1 to 95")
    settings: dict[str, Any] = {"size": size, "format": format}
    if format == "jpeg":
        settings["quality"] = quality
    if channels != 1:
        settings["channels"] = channels
    if resize_mode != "stretch":
        settings["resize_mode"] = resize_mode
    return {**settings, "resampling": _resampling()}


def decoders() -> dict[str, str]:
    """Return the versions of the image libraries, for prepared.json."""
    found = {}
    for package in ("pillow-simd", "pillow", "simplejpeg", "isal"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def open_target(target: Path, settings: dict[str, Any]) -> PreviousState:
    """Start or resume a target folder with these settings; the caller holds `exclusive_lock`."""
    remove_temporary_files(target)
    note = read_prepared(target)
    if note is None:
        # A folder with a manifest was written by data-prep, but its settings are lost.
        if any(target.iterdir()) and not (target / MANIFEST).is_file():
            raise DataError(f"{target} contains other files; name an empty or a new folder")
        mark_incomplete(target, settings)
        manifest.write_manifest(target, [])
        return PreviousState({}, False, settings)
    keys = dict.fromkeys((*settings, *OPTIONAL_SETTINGS))
    differing = [key for key in keys if note.get(key) != settings.get(key)]
    if differing:
        raise DataError(
            f"{target} was written with another {' and '.join(differing)}"
            f" ({', '.join(repr(note.get(key)) for key in differing)});"
            " name another folder, or remove this folder"
        )
    complete = note["complete"]
    return PreviousState(manifest.read_manifest(target, partial=not complete), complete, note)


def mark_incomplete(target: Path, settings: dict[str, Any]) -> None:
    """Mark the folder as incomplete in prepared.json."""
    _write_metadata(target, {**settings, "complete": False})


def finish_target(
    target: Path,
    note: dict[str, Any],
    rows: Sequence[Row],
    label_files: LabelFiles | None,
    beside: Iterable[Path] = (),
) -> dict[str, Any]:
    """Write manifest, label files and rejected.csv, then mark the folder as complete.

    The mark is written last, when everything is on the disk. Unchanged files are not rewritten.
    `rows` are the rows of all images in order; `label_files` gives the label files; `beside` are
    files to copy if they exist. Returns the contents of prepared.json.
    """
    ready = {row.image for row in rows if not row.problem}
    files = {
        MANIFEST: manifest.encode_manifest(rows),
        "rejected.csv": _reject_list(rejected_images(rows)),
    }
    files |= {file.name: _content(file) for file in beside}
    if label_files is not None:
        files |= label_files(ready)
    note = {**note, "images": len(rows), "complete": True}
    try:
        stale = {name: data for name, data in files.items() if _content(target / name) != data}
        if not stale and read_prepared(target) == note:
            return note
        _write_metadata(target, {**note, "complete": False})
        for name, data in stale.items():
            if data is None:
                (target / name).unlink()
            else:
                write_atomic(target / name, data)
        sync_filesystem(target)
    except OSError as error:
        raise DataError(disk_error_text(target, error, len(ready), len(rows))) from None
    _write_metadata(target, note)
    return note


def write_resized(
    data: bytes, row: Row, target: str, settings: dict[str, Any], kind: str = "file"
) -> tuple[Row, list[str]]:
    """Decode, resize and write one image; return its row, with a problem if it is unreadable.

    `row` gives the names of the image and of the file to write, `kind` the type of the bytes. The
    second result are the notes of `image_decoding.decode`.
    """
    row = row._replace(source_sha256=manifest.sha256_of(data))
    notes: list[str] = []
    try:
        channels = settings.get("channels", 1)
        pixels = catalog_reader.decode_source(data, kind, row.image, channels, notes)
        small = encode_image(pixels if channels == 3 else pixels[..., 0], settings, notes)
    except DataError as error:
        return reject_image(row, text_without_path(error, row.image), target), []
    write_atomic(os.path.join(target, row.file), small)  # noqa: PTH118 (speed)
    return row._replace(bytes=len(small), sha256=manifest.sha256_of(small)), notes


def reject_image(row: Row, problem: str, target: str) -> Row:
    """Return the row of an unreadable source; an image written earlier is removed."""
    (Path(target) / row.file).unlink(missing_ok=True)
    return row._replace(file="", problem=problem)


def rejected_images(rows: Iterable[Row]) -> list[Rejection]:
    """Return the unreadable images, sorted by name."""
    return sorted((row.image, row.problem) for row in rows if row.problem)


def target_file(name: str, ending: str) -> str:
    """Return the file of the image `name` in a target folder."""
    stem, dot, old = name.rpartition(".")
    keeps = (
        not dot
        or f".{old.lower()}" not in IMAGE_EXTENSIONS
        or ending == ".png" == f".{old.lower()}"
    )
    return os.path.join("images", name if keeps else stem + ending)  # noqa: PTH118 (speed)


def disk_error_text(folder: Path, error: OSError, done: int, total: int) -> str:
    """Return the error text for a disk that is full or cannot be written to."""
    kept = f"{done:,} of {total:,} images are finished and kept"
    if error.errno not in DISK_FULL_ERRORS:
        return f"{folder}: cannot be written ({error.strerror}); {kept}"
    try:
        free = f", {shutil.disk_usage(folder).free / 1e6:,.0f} MB free"
    except OSError:
        free = ""
    return (
        f"{folder}: the disk is full{free}; {kept}:"
        " free some space and run the same command again to continue"
    )


def text_without_path(error: DataError, path: str) -> str:
    """Return an error's text without the path at its start."""
    return str(error).removeprefix(printable(f"{path}: "))


def encode_image(
    image: np.ndarray, settings: dict[str, Any], notes: list[str] | None = None
) -> bytes:
    """Resize and encode an image, uint8 (height, width) or (height, width, 3)."""
    if settings.get("resize_mode") == "center-crop":  # the square in the middle
        height, width = image.shape[:2]
        side = min(height, width)
        top, left = (height - side) // 2, (width - side) // 2
        image = image[top : top + side, left : left + side]
    small = png.resize_square(image, settings["size"])
    if notes is not None:
        note_levels(small, notes)
    if settings["format"] == "png":
        return png.encode_png(small)
    buffer = io.BytesIO()
    Image.fromarray(small).save(buffer, "JPEG", quality=settings["quality"])
    return buffer.getvalue()


def _resampling() -> str:
    """Return the resampling code in use; the three differ by one level in some pixels."""
    if png.shrink is not None:
        return "data_prep in C"
    return "pillow-simd" if "pillow-simd" in decoders() else "Pillow"


def _reject_list(rejected: list[Rejection]) -> bytes | None:
    if not rejected:
        return None
    text = io.StringIO()
    rows = ([printable(name), printable(reason)] for name, reason in rejected)
    csv.writer(text, lineterminator="\n").writerows([("image", "reason"), *rows])
    return text.getvalue().encode()


def _content(file: Path) -> bytes | None:
    return read_limited(file, manifest.MAX_BYTES) if file.is_file() else None


def _write_metadata(target: Path, content: dict[str, Any]) -> None:
    try:
        write_json(target / PREPARED_FILE, content)
    except OSError as error:
        raise DataError(f"{target}: cannot be written ({error.strerror})") from None
