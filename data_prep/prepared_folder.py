"""Write a folder of resized images with its metadata file prepared.json, which marks completion."""

from __future__ import annotations

import contextlib
import csv
import io
import os
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from data_prep import files, manifest, png
from data_prep.errors import DataError, printable
from data_prep.image_decoding import IMAGE_EXTENSIONS, decode, note_levels
from data_prep.manifest import MANIFEST, PREPARED_FILE, LabelFiles, Row, read_prepared

#: Marks the images as synthetic; copied to folders of small images.
DEMO_FILE = "demo.json"

#: Tool name in prepared.json; the number changes if the same command would give other pixels.
TOOL = "data_prep resize 1"

#: Formats that can be written, with the ending of their files.
FORMATS = {"png": ".png", "jpeg": ".jpg"}

#: The possible values of each setting, and the defaults of those that prepared.json may lack.
ALLOWED: dict[str, Sequence[object]] = {
    "size": range(1, 16385),
    "format": (*FORMATS,),
    "quality": range(1, 96),
    "channels": (1, 3),
    "resize_mode": ("stretch", "center-crop"),
}
DEFAULTS = {"channels": 1, "resize_mode": "stretch", "reader": None}


#: Settings and results, as in prepared.json.
Note = dict[str, Any]


def check_settings(**settings: Any) -> Note:
    """Check the settings that determine the pixels and return them as in prepared.json."""
    for name, value in settings.items():
        if value not in (allowed := ALLOWED[name]):
            use = f"{allowed[0]} to {allowed[-1]}" if isinstance(allowed, range) else allowed
            raise DataError(f"{name} is {value!r}; use {use}")
    if settings["format"] != "jpeg":
        del settings["quality"]
    settings = {key: value for key, value in settings.items() if DEFAULTS.get(key) != value}
    return {**settings, "resampling": _resampling()}


def decoders() -> dict[str, str]:
    """Return the versions of the image libraries, for prepared.json."""
    found = {}
    for package in ("pillow-simd", "pillow", "simplejpeg", "isal"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def open_target(target: Path, settings: Note) -> tuple[dict[str, Row], Note]:
    """Start or resume a target folder with these settings; return its manifest and its note.

    The caller holds `exclusive_lock`.
    """
    files.remove_temporary_files(target)
    note = read_prepared(target)
    if note is None:
        # A folder with a manifest was written by data-prep, but its settings are lost.
        if any(target.iterdir()) and not (target / MANIFEST).is_file():
            raise DataError(f"{target} contains other files; name an empty or a new folder")
        manifest.write_manifest(target, [])
        return {}, write_note(target, settings)
    keys = dict.fromkeys((*settings, *DEFAULTS))
    if differing := [key for key in keys if note.get(key) != settings.get(key)]:
        what = " and ".join(f"{key} ({note.get(key)!r})" for key in differing)
        fix = "name another folder, or remove this folder"
        raise DataError(f"{target} was written with another {what}; {fix}")
    return manifest.read_manifest(target, partial=not note["complete"]), note


def write_note(target: Path, content: Note, *, complete: bool = False) -> Note:
    """Write prepared.json, which marks the folder as complete or not, and return it."""
    content = {**content, "complete": complete}
    try:
        files.write_json(target / PREPARED_FILE, content)
    except OSError as error:
        raise DataError(f"{target}: cannot be written ({error.strerror})") from None
    return content


def finish_target(
    target: Path,
    note: Note,
    rows: Sequence[Row],
    label_files: LabelFiles,
    demo: bytes | None = None,
) -> Note:
    """Write manifest, label files, demo.json and rejected.csv, then mark the folder as complete.

    Unchanged files are not rewritten.
    """
    ready = {row.image for row in rows if not row.problem}
    all_files = {
        MANIFEST: manifest.encoded([Row._fields, *rows]),
        "rejected.csv": _reject_list(rejected_images(rows)),
        DEMO_FILE: demo,
        **label_files(ready),
    }
    note = {**note, "images": len(rows), "complete": True}
    try:
        stale = {name: data for name, data in all_files.items() if content(target / name) != data}
        if not stale and read_prepared(target) == note:
            return note
        write_note(target, note)
        for name, data in stale.items():
            if data is None:
                (target / name).unlink()
            else:
                files.write_atomic(target / name, data)
        files.sync_filesystem(target)
    except OSError as error:
        raise DataError(disk_error_text(target, error, len(ready), len(rows))) from None
    return write_note(target, note, complete=True)


def write_resized(data: bytes, row: Row, target: str, settings: Note) -> tuple[Row, list[str]]:
    """Resize and write an image; return its row, with a problem if it is unreadable, and notes."""
    row = row._replace(source_sha256=manifest.sha256_of(data))
    notes: list[str] = []
    try:
        channels = settings.get("channels", 1)
        pixels = decode(data, row.image, channels, notes)
        small = encode_image(pixels if channels == 3 else pixels[..., 0], settings, notes)
    except DataError as error:
        return reject_image(row, text_without_path(error, row.image), target), []
    files.write_atomic(os.path.join(target, row.file), small)  # noqa: PTH118 (speed)
    return row._replace(bytes=len(small), sha256=manifest.sha256_of(small)), notes


def reject_image(row: Row, problem: str, target: str) -> Row:
    """Return the row of an unreadable source; an image written earlier is removed."""
    (Path(target) / row.file).unlink(missing_ok=True)
    return row._replace(file="", problem=problem)


def rejected_images(rows: Iterable[Row]) -> list[tuple[str, str]]:
    """Return the names of the unreadable images, sorted, and why."""
    return sorted((row.image, row.problem) for row in rows if row.problem)


def target_file(name: str, ending: str) -> str:
    """Return the file of the image `name` in a target folder."""
    stem, old = os.path.splitext(name)  # noqa: PTH122 (speed)
    if old.lower() not in IMAGE_EXTENSIONS or ending == ".png" == old.lower():
        stem, ending = name, ""
    return os.path.join("images", stem + ending)  # noqa: PTH118 (speed)


def disk_error_text(folder: Path, error: OSError, done: int, total: int) -> str:
    """Return the error text for a disk that is full or cannot be written to."""
    kept = f"{done:,} of {total:,} images are finished and kept"
    if error.errno not in files.DISK_FULL_ERRORS:
        return f"{folder}: cannot be written ({error.strerror}); {kept}"
    return f"{folder}: the disk is full; {kept}: free some space and run the same command again"


def text_without_path(error: DataError, path: str) -> str:
    """Return an error's text without the path at its start."""
    return str(error).removeprefix(printable(f"{path}: "))


def encode_image(image: np.ndarray, settings: Note, notes: list[str] | None = None) -> bytes:
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


def _reject_list(rejected: list[tuple[str, str]]) -> bytes | None:
    if not rejected:
        return None
    text = io.StringIO()
    rows = ([printable(name), printable(reason)] for name, reason in rejected)
    csv.writer(text, lineterminator="\n").writerows([("image", "reason"), *rows])
    return text.getvalue().encode()


def content(file: Path) -> bytes | None:
    """Return the bytes of a file, or None without it."""
    return files.read_limited(file, manifest.MAX_BYTES) if file.is_file() else None
