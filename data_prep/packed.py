"""Pack all small images into one memory-mapped file, or their files into a few tar files.

A packed folder contains the label file, `packed.json`, whose `names` are the images in order, and
`manifest.csv` with the SHA-256 of each image and of the source file. It has the images as one of

    images.npy          uint8 of shape (images, size, size), or with 3 channels (images, size,
                        size, 3), for `numpy.load(…, mmap_mode="r")`. No loader decodes, and
                        112,120 X-rays of 264 px take 7.8 GB, about three times the space of PNGs
    images-00000.tar …  shards: the image files unchanged, in the format of WebDataset, and in
                        `shards` of packed.json the place of each. For file systems that are slow
                        with many small files
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
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
from data_prep.image_decoding import IMAGE_EXTENSIONS
from data_prep.manifest import Row
from data_prep.prepared_folder import disk_error_text
from data_prep.readers import catalog_reader as sources
from data_prep.readers import labels_csv
from data_prep.resize_plan import list_source_images

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
    shards: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Pack a folder of square images of one size into one array file, or into tar files.

    The target contains the images, the labels, and a list of the images. An interrupted call
    restarts from the first image.

    Args:
        source: a complete folder from `resize_folder`, or what `reader` reads.
        target: a new or empty folder, or a packed folder.
        num_workers: number of processes (default: one per CPU core).
        progress: show a progress bar.
        reader: the format of the source (default: `nih`, or that of a prepared folder).
        channels: 1 for grey images, 3 for RGB (default: as in the source, or grey).
        shards: megabytes of each tar file (default: no tar files but one array).
        options: options of the reader, as in `open_reader`.

    Returns:
        A dictionary of `images` (their number), `size` (in pixels), `names` and `tool`, with
        `channels` for RGB, `reader` for other formats than the NIH's, and `shards`, the place of
        each image in the tar files.

    Raises:
        DataError: the source is incomplete, an image is unreadable, changed or of another size, the
            target contains other files, or the disk is full.
    """
    source, target = Path(source), Path(target)
    if shards is not None and shards < 1:
        raise DataError(f"shards is {shards}: give the megabytes of a tar file, 1 or more")
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
    if shards and found.kind == "record":
        raise DataError(f"{source}: its images are no files to put into shards; pack one array")
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
        need = 0 if shards else first.size * len(names)
        if (free := shutil.disk_usage(target).free) < need:
            raise DataError(
                f"{target}: {need / 1e6:,.1f} MB are needed, {free / 1e6:,.1f} MB are free; free"
                " some space"
            )
        jobs = [
            (at, name, place, known[name].sha256 if name in known else "")
            for at, (name, place) in enumerate(zip(names, found.sources, strict=True))
        ]
        read = partial(_read, folder=found.folder, kind=found.kind, size=size, channels=colour)
        rows: dict[int, Row] = {}
        try:
            write_json(target / PACKED_FILE, {**note, "complete": False})
            for old in (target / IMAGES_FILE, *target.glob("images-*.tar")):
                old.unlink(missing_ok=True)
            with tqdm(total=len(jobs), desc="pack", unit=" images", disable=not progress) as bar:
                if shards:
                    files = map_in_processes(partial(_read_file, read), jobs, BATCH, num_workers)
                    for row, place in _write_shards(target, _in_order(files), shards * 1_000_000):
                        note.setdefault("shards", []).append(place)
                        rows[len(rows)] = row
                        bar.update()
                else:
                    temporary = target / f".{IMAGES_FILE}{TEMPORARY_SUFFIX}"
                    mapped = np.lib.format.open_memmap(temporary, "w+", dtype=np.uint8, shape=shape)
                    mapped.flush()
                    work = partial(_pack_image, read, file=str(temporary), offset=mapped.offset)
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
#: With its bytes, and their SHA-256.
File = tuple[Job, bytes, str]
#: From a job to the bytes of its source, the pixels, and the SHA-256 of the bytes.
Read = Callable[[Job], tuple[bytes, np.ndarray, str]]


def _read(
    job: Job, *, folder: Path, kind: str, size: int, channels: int
) -> tuple[bytes, np.ndarray, str]:
    """Return the bytes of a source, its pixels and its SHA-256, all checked."""
    _, _, place, expected = job
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
    return data, image, found


def _pack_image(read: Read, job: Job, *, file: str, offset: int) -> tuple[int, Row]:
    at, name, place, _ = job
    _, image, found = read(job)
    pixels = image.tobytes()
    # Write, do not map: on a full disk a write fails, whereas a mapped page kills the process.
    with open(file, "r+b") as out:  # noqa: PTH123
        out.seek(offset + at * len(pixels))
        out.write(pixels)
    return at, Row(
        name, IMAGES_FILE, len(pixels), manifest.sha256_of(pixels), Path(place).name, found
    )


def _read_file(read: Read, job: Job) -> File:
    data, _, sha256 = read(job)
    return job, data, sha256


def _in_order(batches: Iterable[list[File]]) -> Iterator[File]:
    """Yield the files by their rows; the workers do not finish in order."""
    waiting: dict[int, list[File]] = {}
    row = 0
    for files in batches:
        waiting[files[0][0][0]] = files
        while row in waiting:
            ready = waiting.pop(row)
            yield from ready
            row += len(ready)


def _write_shards(target: Path, files: Iterator[File], most: int) -> Iterator[tuple[Row, str]]:
    """Write files into tars of about `most` bytes; yield each one's row and place."""
    ready: list[tuple[Path, Path]] = []
    for first in files:
        shard = f"images-{len(ready):05}.tar"
        ready.append((target / f".{shard}{TEMPORARY_SUFFIX}", target / shard))
        with tarfile.open(ready[-1][0], "w", format=tarfile.GNU_FORMAT) as tar:
            for (_, name, source, _), data, sha256 in chain([first], files):
                member = tarfile.TarInfo(_member_name(name, source))
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
                begins = tar.offset - -(-len(data) // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
                row = Row(name, shard, len(data), sha256, Path(source).name, sha256)
                yield row, f"{shard}@{begins}+{len(data)}"
                if tar.offset >= most:
                    break
    for written, shard_file in ready:
        written.replace(shard_file)


def _member_name(name: str, source: str) -> str:
    """Return an image's name with the ending of its file, which tells readers how to decode it."""
    ending = Path(source).suffix
    if ending.lower() not in IMAGE_EXTENSIONS:  # a place in an archive: its name has the ending
        return name
    old = Path(name).suffix
    return name.removesuffix(old if old.lower() in IMAGE_EXTENSIONS else "") + ending
