"""All small images in one memory-mapped file, for loaders that need not decode.

A packed folder holds `images.npy`, uint8 of shape (images, size, size), readable by
`numpy.load(…, mmap_mode="r")`; the label file; `packed.json`, whose `names` give the image in each
place; and `manifest.csv` with the SHA-256 of each image's pixels and of the file they came from.
It is the fastest way to have images in memory and takes about three times the disk of PNGs: at
264 px the whole NIH set is 7.8 GB.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from data_prep import manifest
from data_prep.errors import DataError
from data_prep.files import (
    TEMPORARY,
    in_batches,
    on_all_cores,
    read_json,
    same_place,
    sole_writer,
    sweep,
    sync,
    write_json,
    write_whole,
)
from data_prep.images import decode_grey, read_bytes, read_grey
from data_prep.manifest import Row
from data_prep.prepared import full_disk, read_note
from data_prep.readers.nih import find_label_file, read_catalog
from data_prep.readers.nih_labels import keep_rows

TOOL = "data_prep pack 1"

NOTE = "packed.json"
IMAGES = "images.npy"

#: The types of what packed.json holds.
NOTE_TYPES = {"tool": str, "images": int, "size": int, "names": list, "complete": bool}

BATCH = 64


def pack_folder(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    workers: int | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Pack a data folder of images of one size (what `resize_folder` leaves) into `target`.

    The file gets its name when it is whole; a call that was cut short starts again, which takes
    seconds for a thousand images. Returns `tool`, `images`, `size` and `names`.

    Raises `DataError` for a source that is not complete, for an image that cannot be read, is not
    what the source's manifest says or is not of the first one's square size, for a target that
    holds other files, and for a full disk.
    """
    source, target = Path(source), Path(target)
    prepared = read_note(source)
    if prepared is not None and not prepared["complete"]:
        raise DataError(
            f"{source} is not complete: run the command that makes it again, which goes on"
        )
    catalog = read_catalog(source)
    if same_place(source, target):
        raise DataError(f"{target} is the source itself: name another folder to write to")
    known = manifest.read(source)
    first = read_grey(catalog["path"].iloc[0])
    size = first.shape[0]
    names = catalog["image"].tolist()
    note = {"tool": TOOL, "images": len(catalog), "size": size, "names": names}
    with sole_writer(target):
        sweep(target)
        if any(target.iterdir()) and not is_packed(target):
            raise DataError(f"{target} holds other files; name an empty or a new folder")
        temporary = target / f".{IMAGES}{TEMPORARY}"
        need = first.size * len(catalog)
        if shutil.disk_usage(target).free < need:
            raise DataError(f"{target}: {need / 1e9:.1f} GB are needed; free some space")
        try:
            write_json(target / NOTE, {**note, "complete": False})
            np.lib.format.open_memmap(
                temporary, mode="w+", dtype=np.uint8, shape=(len(catalog), size, size)
            ).flush()
            jobs = [
                (at, name, path, known[name].sha256 if name in known else "")
                for at, (name, path) in enumerate(zip(names, catalog["path"], strict=True))
            ]
            rows = _fill(temporary, jobs, workers, progress)
            temporary.replace(target / IMAGES)
            manifest.write(target, [rows[at] for at in range(len(rows))])
            label_file = find_label_file(source)
            write_whole(target / label_file.name, keep_rows(label_file, set(names)))
            if (source / "demo.json").is_file():  # so that nobody takes generated images for real
                write_whole(target / "demo.json", (source / "demo.json").read_bytes())
            sync(target)
            write_json(target / NOTE, {**note, "complete": True})
        except BaseException as error:
            with contextlib.suppress(OSError):  # on a disk that takes nothing, nothing goes either
                temporary.unlink()
            if isinstance(error, OSError):
                raise DataError(full_disk(target, error, 0, len(catalog))) from None
            raise
    return note


def is_packed(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder is one of `pack_folder`'s, wholly packed or not."""
    return (Path(folder) / NOTE).is_file()


def open_packed(folder: str | os.PathLike[str]) -> tuple[np.ndarray, pd.DataFrame]:
    """The images, a read-only memory map of uint8 (images, size, size), and their catalog.

    Row i of the catalog belongs to image i. Raises `DataError` if the folder is not wholly packed.
    """
    folder = Path(folder)
    again = f"pack it again with 'data-prep pack SOURCE {folder}'"
    note = read_json(folder / NOTE, again)
    if note is None:
        raise DataError(f"{folder}: no {NOTE}; make it with 'data-prep pack SOURCE {folder}'")
    wrong = [key for key, kind in NOTE_TYPES.items() if type(note.get(key)) is not kind]
    if wrong:
        raise DataError(f"{folder / NOTE}: damaged ('{wrong[0]}'); {again}")
    if not note["complete"]:
        raise DataError(f"{folder}: packing was cut short; {again}")
    try:
        if not (folder / IMAGES).is_file():
            raise ValueError("no such file")
        images = np.load(folder / IMAGES, mmap_mode="r", allow_pickle=False)
    except Exception as error:
        # NumPy reads the header of the file as Python: damage may raise nearly anything.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{folder / IMAGES}: cannot be read ({reason}); {again}") from None
    shape = (note["images"], note["size"], note["size"])
    whole = isinstance(images, np.ndarray) and images.flags.c_contiguous
    if not whole or images.shape != shape or images.dtype != np.uint8:
        raise DataError(f"{folder / IMAGES}: not the images that {NOTE} tells of; {again}")
    catalog = read_catalog(folder, check_images=False)
    if catalog["image"].tolist() != note["names"] or len(images) != len(catalog):
        raise DataError(f"{folder}: label file and packed images do not go together; {again}")
    return images, catalog


#: An image to pack: its place, its name, its file, and the file's SHA-256 where it is known.
Job = tuple[int, str, str, str]


def _fill(file: Path, jobs: list[Job], workers: int | None, progress: bool) -> dict[int, Row]:
    """The rows, by place, of the images that have been put into the file."""
    rows: dict[int, Row] = {}
    work = partial(_fill_some, file=str(file))
    with tqdm(total=len(jobs), desc="pack", unit=" images", disable=not progress) as bar:
        for start, made in on_all_cores(work, in_batches(jobs, BATCH), workers):
            rows |= dict(enumerate(made, start))
            bar.update(len(made))
    return rows


def _fill_some(jobs: Sequence[Job], *, file: str) -> tuple[int, list[Row]]:
    images = np.lib.format.open_memmap(file, mode="r+")
    start, size = jobs[0][0], images.shape[1]
    block = np.empty((len(jobs), size, size), dtype=np.uint8)
    rows = []
    for place, (_, name, path, expected) in enumerate(jobs):
        data = read_bytes(path)
        found = manifest.digest(data)
        if expected and found != expected:
            raise DataError(
                f"{path}: not what was written there (its SHA-256 is not the manifest's);"
                " remove it and run the command that makes the folder again"
            )
        image = decode_grey(data, path)
        if image.shape != (size, size):
            raise DataError(
                f"{path}: {image.shape[1]} x {image.shape[0]} pixels, the first image has"
                f" {size} x {size}; resize the folder first"
            )
        block[place] = image
        pixels = block[place].data.cast("B")
        row = Row(name, IMAGES, len(pixels), manifest.digest(pixels), Path(path).name, found)
        rows.append(row)
    # Written, not mapped: on a full disk a write fails, a touched page kills the process.
    with open(file, "r+b") as out:  # noqa: PTH123
        out.seek(images.offset + start * size * size)
        out.write(block.tobytes())
    return start, rows
