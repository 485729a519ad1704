"""Pack all small images into one memory-mapped file.

A packed folder contains the label file, `packed.json`, whose `names` are the images in order,
`manifest.csv` with the SHA-256 of each image and of the source file, and `images.npy`: uint8 of
shape (images, size, size), or with 3 channels (images, size, size, 3), for `numpy.load(…,
mmap_mode="r")`. No loader decodes, and 112,120 X-rays of 264 px take 7.8 GB, about three times the
space of PNGs.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from data_prep import manifest
from data_prep.errors import DataError
from data_prep.files import (
    TEMPORARY_SUFFIX,
    exclusive_lock,
    is_same_path,
    map_in_processes,
    remove_temporary_files,
    sync_filesystem,
    write_atomic,
    write_json,
)
from data_prep.folder_state import IMAGES_FILE, PACKED_FILE, is_packed, read_prepared
from data_prep.manifest import Row
from data_prep.prepared_folder import disk_error_text
from data_prep.readers import catalog_reader as sources
from data_prep.readers import labels_csv
from data_prep.resize import list_source_images

TOOL = "data_prep pack 1"

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
    """Pack a folder of square images of one size into one array file.

    The target contains the images, the labels, and a list of the images. An interrupted call
    restarts from the first image.

    Args:
        source: a complete folder from `resize_folder`, or what `reader` reads.
        target: a new or empty folder, or a packed folder.
        num_workers: number of processes (default: one per CPU core).
        progress: show a progress bar.
        reader: the format of the source (default: `nih`, or that of a prepared folder).
        channels: 1 for grey images, 3 for RGB (default: as in the source, or grey).
        options: options of the reader, as in `open_reader`.

    Returns:
        A dictionary of `images` (their number), `size` (in pixels), `names` and `tool`, with
        `channels` for RGB and `reader` for other formats than the NIH's.

    Raises:
        DataError: the source is incomplete, an image is unreadable, changed or of another size, the
            target contains other files, or the disk is full.
    """
    source, target = Path(source), Path(target)
    prepared = read_prepared(source)
    if prepared is not None and not prepared["complete"]:
        raise DataError(
            f"{source} is not complete: run the command that wrote it again, which continues"
        )
    if reader is None and labels_csv.has_labels_csv(source):
        reader = "table"
    found, labels_for = list_source_images(source, reader, options or {})
    if is_same_path(source, target):
        raise DataError(f"{target} is the source itself: name another folder to write to")
    known = manifest.read_manifest(source)
    colour = channels or int((prepared or {}).get("channels", 1))
    names = list(found.images)
    where = os.path.join(found.folder, found.sources[0])  # noqa: PTH118
    data = sources.read_source(found.folder, found.kind, found.sources[0])
    first = sources.decode_source(data, found.kind, where, colour)
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
        jobs = [
            (at, name, place, known[name].sha256 if name in known else "")
            for at, (name, place) in enumerate(zip(names, found.sources, strict=True))
        ]
        rows: dict[int, Row] = {}
        try:
            write_json(target / PACKED_FILE, {**note, "complete": False})
            (target / IMAGES_FILE).unlink(missing_ok=True)
            temporary = target / f".{IMAGES_FILE}{TEMPORARY_SUFFIX}"
            mapped = np.lib.format.open_memmap(temporary, "w+", dtype=np.uint8, shape=shape)
            mapped.flush()
            work = partial(
                _pack_image,
                folder=found.folder,
                kind=found.kind,
                size=size,
                channels=colour,
                file=str(temporary),
                offset=mapped.offset,
            )
            with tqdm(
                total=len(jobs), desc="pack", unit=" images", disable=not progress or None
            ) as bar:
                for made in map_in_processes(work, jobs, BATCH, num_workers):
                    rows |= dict(made)
                    bar.update(len(made))
            temporary.replace(target / IMAGES_FILE)
            manifest.write_manifest(target, [rows[at] for at in range(len(rows))])
            for name, content in labels_for(None, set(names)).items():
                if content is not None:
                    write_atomic(target / name, content)
            if (found.folder / "demo.json").is_file():  # marks the images as synthetic
                write_atomic(target / "demo.json", (found.folder / "demo.json").read_bytes())
            sync_filesystem(target)
            write_json(target / PACKED_FILE, {**note, "complete": True})
        except BaseException as error:
            with contextlib.suppress(OSError):  # a full disk may refuse this too
                remove_temporary_files(target)
            if isinstance(error, OSError):
                raise DataError(disk_error_text(target, error, 0, len(names))) from None
            raise
    return note


#: An image to pack: its row, its name, its source, and the source's SHA-256 where it is known.
Job = tuple[int, str, str, str]


def _pack_image(
    job: Job, *, folder: Path, kind: str, size: int, channels: int, file: str, offset: int
) -> tuple[int, Row]:
    """Check a source, and write its pixels to the array; return their row in the manifest."""
    at, name, place, expected = job
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
    pixels = image.tobytes()
    # Write, do not map: on a full disk a write fails, whereas a mapped page kills the process.
    with open(file, "r+b") as out:  # noqa: PTH123
        out.seek(offset + at * len(pixels))
        out.write(pixels)
    return at, Row(
        name, IMAGES_FILE, len(pixels), manifest.sha256_of(pixels), Path(place).name, found
    )
