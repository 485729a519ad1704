"""Pack all small images into one memory-mapped file.

A packed folder contains the label files, `packed.json`, `manifest.csv` with the SHA-256 of each
image, and `images.npy`: uint8 (images, size, size), or (images, size, size, 3).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from data_prep import files, manifest
from data_prep.errors import DataError
from data_prep.image_decoding import decode
from data_prep.manifest import IMAGES_FILE, PACKED_FILE, Row, is_packed, read_prepared
from data_prep.prepared_folder import DEMO_FILE, content, disk_error_text
from data_prep.readers import labels_csv
from data_prep.readers.catalog_reader import read_source
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
    """Pack a folder of square images of one size into one array file; return `packed.json`.

    An interrupted call restarts from the first image.
    """
    source, target = Path(source), Path(target)
    prepared = read_prepared(source) or {"complete": True}
    if not prepared["complete"]:
        raise DataError(f"{source} is not complete: run the command that wrote it again")
    found, labels_for = list_source_images(source, reader, options or {})
    if files.is_same_path(source, target):
        raise DataError(f"{target} is the source itself: name another folder to write to")
    known = manifest.read_manifest(source)
    colour = channels or int(prepared.get("channels", 1))
    names = list(found.images)
    first = read_source(found.folder, found.sources[0])
    size = decode(first, found.path(0), colour).shape[0]
    note: dict[str, Any] = {"tool": TOOL, "images": len(names), "size": size, "names": names}
    if colour != 1:
        note["channels"] = colour
    if reader is not None or labels_csv.has_labels_csv(source):
        note["reader"] = prepared.get("reader", reader or "table")
    shape = (len(names), size, size) + ((3,) if colour == 3 else ())
    with files.exclusive_lock(target):
        files.remove_temporary_files(target)
        if any(target.iterdir()) and not is_packed(target):
            raise DataError(f"{target} contains other files; name an empty or a new folder")
        jobs = [
            (at, name, place, known[name].sha256 if name in known else "")
            for at, (name, place) in enumerate(zip(names, found.sources, strict=True))
        ]
        rows: dict[int, Row] = {}
        try:
            files.write_json(target / PACKED_FILE, {**note, "complete": False})
            (target / IMAGES_FILE).unlink(missing_ok=True)
            temporary = target / f".{IMAGES_FILE}{files.TEMPORARY_SUFFIX}"
            mapped = np.lib.format.open_memmap(temporary, "w+", dtype=np.uint8, shape=shape)
            mapped.flush()
            place: dict[str, Any] = {"file": str(temporary), "offset": mapped.offset}
            work = partial(_pack_image, folder=found.folder, shape=shape[1:], **place)
            packing = files.map_in_processes(work, jobs, BATCH, num_workers)
            for made in files.with_progress(packing, "pack", len(jobs), progress):
                rows |= dict(made)
            temporary.replace(target / IMAGES_FILE)
            manifest.write_manifest(target, [rows[at] for at in range(len(rows))])
            written = {**labels_for(None, set(names)), DEMO_FILE: content(found.folder / DEMO_FILE)}
            for name, data in written.items():
                if data is not None:
                    files.write_atomic(target / name, data)
            files.sync_filesystem(target)
            files.write_json(target / PACKED_FILE, {**note, "complete": True})
        except BaseException as error:
            with contextlib.suppress(OSError):  # a full disk may refuse this too
                files.remove_temporary_files(target)
            if isinstance(error, OSError):
                raise DataError(disk_error_text(target, error, 0, len(names))) from None
            raise
    return note


#: An image to pack: its row, its name, its source, and the source's SHA-256 where it is known.
Job = tuple[int, str, str, str]


def _pack_image(
    job: Job, *, folder: Path, shape: tuple[int, ...], file: str, offset: int
) -> tuple[int, Row]:
    """Check a source, and write its pixels to the array; return their row in the manifest."""
    at, name, place, expected = job
    path = os.path.join(folder, place)  # noqa: PTH118 (speed)
    data = read_source(folder, place)
    found = manifest.sha256_of(data)
    if expected and found != expected:
        raise DataError(f"{path}: changed since it was written; {manifest.REPAIR_HINT}")
    image = decode(data, path, 3 if len(shape) == 3 else 1)
    if image.shape[:2] != shape[:2]:
        here = f"{image.shape[1]} x {image.shape[0]} pixels, the first image has {shape[0]}"
        raise DataError(f"{path}: {here}; resize the folder first")
    pixels = image.tobytes()
    # Write, do not map: on a full disk a write fails, whereas a mapped page kills the process.
    with open(file, "r+b") as out:  # noqa: PTH123
        out.seek(offset + at * len(pixels))
        out.write(pixels)
    digest = manifest.sha256_of(pixels)
    return at, Row(name, IMAGES_FILE, len(pixels), digest, Path(place).name, found)
