"""Pack all small images into one memory-mapped file, so that loaders need not decode.

A packed folder contains `images.npy`, uint8 of shape (images, size, size), or with 3 channels
(images, size, size, 3), readable by `numpy.load(…, mmap_mode="r")`; the label file; `packed.json`,
whose `names` are the images in the order of the array; and `manifest.csv` with the SHA-256 of each
image's pixels and of the source file. This is the fastest way to get images into memory and takes
about three times the disk space of PNGs: at 264 px the whole NIH set is 7.8 GB.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from data_prep import manifest
from data_prep.errors import DataError
from data_prep.files import (
    TEMPORARY_SUFFIX,
    exclusive_lock,
    in_batches,
    is_same_path,
    map_in_processes,
    read_json,
    remove_temporary_files,
    sync_filesystem,
    write_atomic,
    write_json,
)
from data_prep.manifest import Row
from data_prep.prepared_folder import disk_error_text, read_metadata
from data_prep.readers import image_source as sources
from data_prep.readers import labels_csv
from data_prep.readers.nih import read_catalog
from data_prep.resize_plan import list_source_images

TOOL = "data_prep pack 1"

METADATA_FILE = "packed.json"
IMAGES_FILE = "images.npy"

#: The types of the values in packed.json.
METADATA_TYPES = {"tool": str, "images": int, "size": int, "names": list, "complete": bool}

BATCH = 64


def pack_folder(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    num_workers: int | None = None,
    progress: bool = True,
    reader: str | None = None,
    channels: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Pack a data folder of images of one size (such as `resize_folder` writes) into one array.

    The file gets its name when it is complete. An interrupted call restarts, which takes seconds
    for a thousand images.

    Args:
        source: a complete data folder of square images, or what `reader` reads.
        target: where to write; empty, new, or a packed folder.
        num_workers: number of processes; None: one per core.
        progress: show a progress bar.
        reader: format of the source, see `data_prep.readers`; None: the NIH's, or the
            reader of the source folder.
        channels: 1 (grey) or 3 (RGB); None: as the source was made, else grey.
        options: options of the reader.

    Returns:
        `tool`, `images`, `size` and `names`; `channels` and `reader` where they are not the NIH's.

    Raises:
        DataError: the source is not complete, an image cannot be read, is not what the source's
            manifest says or differs in size from the first, the target contains other files, or the
            disk is full.
    """
    source, target = Path(source), Path(target)
    prepared = read_metadata(source)
    if prepared is not None and not prepared["complete"]:
        raise DataError(
            f"{source} is not complete: run the command that wrote it again, which continues"
        )
    if reader is None and labels_csv.has_labels_csv(source):
        reader = "table"
    contents = list_source_images(source, reader, options or {})
    if is_same_path(source, target):
        raise DataError(f"{target} is the source itself: name another folder to write to")
    known = manifest.read_manifest(source)
    colour = channels or int((prepared or {}).get("channels", 1))
    names = list(contents.images)
    where = os.path.join(contents.folder, contents.locations[0])  # noqa: PTH118
    data = sources.read_source(contents.folder, contents.kind, contents.locations[0])
    first = sources.decode_source(data, contents.kind, where, colour)
    size = first.shape[0]
    note: dict[str, Any] = {"tool": TOOL, "images": len(names), "size": size, "names": names}
    if colour != 1:
        note["channels"] = colour
    if reader is not None:
        note["reader"] = (prepared or {}).get("reader", reader)
    shape = (len(names), size, size) + ((3,) if colour == 3 else ())
    with exclusive_lock(target):
        remove_temporary_files(target)
        if any(target.iterdir()) and not is_packed(target):
            raise DataError(f"{target} contains other files; name an empty or a new folder")
        temporary = target / f".{IMAGES_FILE}{TEMPORARY_SUFFIX}"
        need = first.size * len(names)
        if (free := shutil.disk_usage(target).free) < need:
            raise DataError(
                f"{target}: {need / 1e6:,.1f} MB are needed, {free / 1e6:,.1f} MB are free; free"
                " some space"
            )
        try:
            write_json(target / METADATA_FILE, {**note, "complete": False})
            np.lib.format.open_memmap(temporary, mode="w+", dtype=np.uint8, shape=shape).flush()
            jobs = [
                (at, name, place, known[name].sha256 if name in known else "")
                for at, (name, place) in enumerate(zip(names, contents.locations, strict=True))
            ]
            work = partial(
                _pack_batch, file=str(temporary), folder=contents.folder, kind=contents.kind
            )
            rows = _pack_images(work, jobs, num_workers, progress)
            temporary.replace(target / IMAGES_FILE)
            manifest.write_manifest(target, [rows[at] for at in range(len(rows))])
            for name, content in contents.label_files(None)(set(names)).items():
                if content is not None:
                    write_atomic(target / name, content)
            if (contents.folder / "demo.json").is_file():  # marks the images as synthetic
                write_atomic(target / "demo.json", (contents.folder / "demo.json").read_bytes())
            sync_filesystem(target)
            write_json(target / METADATA_FILE, {**note, "complete": True})
        except BaseException as error:
            with contextlib.suppress(OSError):  # a full disk may refuse this too
                temporary.unlink()
            if isinstance(error, OSError):
                raise DataError(disk_error_text(target, error, 0, len(names))) from None
            raise
    return note


def is_packed(folder: str | os.PathLike[str]) -> bool:
    """Return whether `pack_folder` wrote to this folder, completely or not."""
    return (Path(folder) / METADATA_FILE).is_file()


def open_packed(folder: str | os.PathLike[str]) -> tuple[np.ndarray, pd.DataFrame]:
    """Open a packed folder in the NIH's format; `data_prep.open_reader` opens all formats.

    Args:
        folder: what `pack_folder` wrote.

    Returns:
        The images, a read-only memory map of uint8 (images, size, size), or (images, size, size, 3)
        in colour, and their catalog; row i of the catalog belongs to image i.

    Raises:
        DataError: the folder is not completely packed.
    """
    folder = Path(folder)
    images, names = open_array(folder)
    catalog = read_catalog(folder, check_images=False)
    if catalog["image"].tolist() != names:
        raise DataError(
            f"{folder}: label file and packed images do not match;"
            f" pack it again with 'data-prep pack SOURCE {folder}'"
        )
    return images, catalog


def reader_name(folder: Path) -> str:
    """Return the name of the reader whose images a packed folder contains."""
    return str((read_json(folder / METADATA_FILE) or {}).get("reader", "nih"))


def open_array(folder: Path) -> tuple[np.ndarray, list[str]]:
    """Return the images of a packed folder, as `open_packed` does, and their names."""
    again = f"pack it again with 'data-prep pack SOURCE {folder}'"
    note = read_json(folder / METADATA_FILE, again)
    if note is None:
        raise DataError(
            f"{folder}: no {METADATA_FILE}; make it with 'data-prep pack SOURCE {folder}'"
        )
    wrong = [key for key, kind in METADATA_TYPES.items() if type(note.get(key)) is not kind]
    if wrong:
        raise DataError(f"{folder / METADATA_FILE}: damaged ('{wrong[0]}'); {again}")
    if not note["complete"]:
        raise DataError(f"{folder}: packing was interrupted; {again}")
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
            f"{folder / IMAGES_FILE}: not the images that {METADATA_FILE} describes; {again}"
        )
    if len(note["names"]) != len(images):
        raise DataError(f"{folder}: label file and packed images do not match; {again}")
    return images, note["names"]


#: An image to pack: its row, its name, its source, and the source's SHA-256 where it is known.
Job = tuple[int, str, str, str]


def _pack_images(
    work: Callable[[Sequence[Job]], tuple[int, list[Row]]],
    jobs: list[Job],
    num_workers: int | None,
    progress: bool,
) -> dict[int, Row]:
    """Pack the images in worker processes and return their rows by place in the array."""
    rows: dict[int, Row] = {}
    with tqdm(total=len(jobs), desc="pack", unit=" images", disable=not progress) as bar:
        for start, made in map_in_processes(work, in_batches(jobs, BATCH), num_workers):
            rows |= dict(enumerate(made, start))
            bar.update(len(made))
    return rows


def _pack_batch(
    jobs: Sequence[Job], *, file: str, folder: Path, kind: str
) -> tuple[int, list[Row]]:
    images = np.lib.format.open_memmap(file, mode="r+")
    start, shape = jobs[0][0], images.shape[1:]
    size, channels = shape[0], 3 if len(shape) == 3 else 1
    block = np.empty((len(jobs), *shape), dtype=np.uint8)
    rows = []
    for at, (_, name, place, expected) in enumerate(jobs):
        path = os.path.join(folder, place)  # noqa: PTH118 (speed)
        data = sources.read_source(folder, kind, place)
        found = manifest.sha256_of(data)
        if expected and found != expected:
            raise DataError(
                f"{path}: changed since it was written (its SHA-256 is not the manifest's);"
                " remove it and run the command that wrote the folder again"
            )
        image = sources.decode_source(data, kind, path, channels)
        if image.shape[:2] != (size, size):
            raise DataError(
                f"{path}: {image.shape[1]} x {image.shape[0]} pixels, the first image has"
                f" {size} x {size}; resize the folder first"
            )
        block[at] = image.reshape(shape)
        pixels = block[at].data.cast("B")
        row = Row(
            name, IMAGES_FILE, len(pixels), manifest.sha256_of(pixels), Path(path).name, found
        )
        rows.append(row)
    # Write, do not map: on a full disk a write fails, whereas a mapped page kills the process.
    with open(file, "r+b") as out:  # noqa: PTH123
        out.seek(images.offset + start * block[0].size)
        out.write(block.tobytes())
    return start, rows
