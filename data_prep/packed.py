"""All small images in one memory-mapped file, for loaders that need not decode.

A packed folder holds `images.npy`, uint8 of shape (images, size, size), readable by
`numpy.load(…, mmap_mode="r")`; the label file; and `packed.json`, whose `names` give the image in
each place. It is the fastest way to have images in memory and takes about three times the disk of
PNGs: at 264 px the whole NIH set is 7.8 GB.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from data_prep.catalog import find_label_file, read_catalog
from data_prep.errors import DataError
from data_prep.files import (
    TEMPORARY,
    on_all_cores,
    read_json,
    sole_writer,
    sweep,
    write_json,
    write_whole,
)
from data_prep.images import read_grey
from data_prep.prepared import full_disk

TOOL = "data_prep pack 1"

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

    Raises `DataError` for an image that cannot be read or is not of the first one's square size,
    for a target that holds other files, and for a full disk.
    """
    source, target = Path(source), Path(target)
    catalog = read_catalog(source)
    if source.resolve() == target.resolve():
        raise DataError(f"{target} is the source itself: name another folder to write to")
    first = read_grey(catalog["path"].iloc[0])
    size = first.shape[0]
    note = {"tool": TOOL, "images": len(catalog), "size": size, "names": catalog["image"].tolist()}
    with sole_writer(target):
        sweep(target)
        if any(target.iterdir()) and read_json(target / "packed.json") is None:
            raise DataError(f"{target} holds other files; name an empty or a new folder")
        temporary = target / f".images.npy{TEMPORARY}"
        need = first.size * len(catalog)
        if shutil.disk_usage(target).free < need:
            raise DataError(f"{target}: {need / 1e9:.1f} GB are needed; free some space")
        try:
            write_json(target / "packed.json", {**note, "complete": False})
            np.lib.format.open_memmap(
                temporary, mode="w+", dtype=np.uint8, shape=(len(catalog), size, size)
            ).flush()
            _fill(temporary, catalog["path"].tolist(), workers, progress)
            temporary.replace(target / "images.npy")
            label_file = find_label_file(source)
            write_whole(target / label_file.name, label_file.read_bytes())
            if (source / "demo.json").is_file():  # so that nobody takes generated images for real
                write_whole(target / "demo.json", (source / "demo.json").read_bytes())
            write_json(target / "packed.json", {**note, "complete": True})
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise DataError(full_disk(target, error, 0, len(catalog))) from None
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    return note


def is_packed(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder is one of `pack_folder`'s, wholly packed or not."""
    return (Path(folder) / "packed.json").is_file()


def open_packed(folder: str | os.PathLike[str]) -> tuple[np.ndarray, pd.DataFrame]:
    """The images, a read-only memory map of uint8 (images, size, size), and their catalog.

    Row i of the catalog belongs to image i. Raises `DataError` if the folder is not wholly packed.
    """
    folder = Path(folder)
    note = read_json(folder / "packed.json")
    if note is None or not note["complete"]:
        what = "no packed.json" if note is None else "packing was cut short"
        raise DataError(f"{folder}: {what}; make it with 'data-prep pack SOURCE {folder}'")
    try:
        images = np.load(folder / "images.npy", mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, json.JSONDecodeError) as error:
        raise DataError(f"{folder / 'images.npy'}: cannot be read ({error}); pack again") from None
    catalog = read_catalog(folder, check_images=False)
    if catalog["image"].tolist() != note["names"] or len(images) != len(catalog):
        raise DataError(f"{folder}: label file and packed images do not go together; pack again")
    return images, catalog


def _fill(file: Path, paths: list[str], workers: int | None, progress: bool) -> None:
    jobs = list(enumerate(paths))
    batches = (jobs[start : start + BATCH] for start in range(0, len(jobs), BATCH))
    with tqdm(total=len(jobs), desc="pack", unit=" images", disable=not progress) as bar:
        for count in on_all_cores(partial(_fill_some, file=str(file)), batches, workers):
            bar.update(count)


def _fill_some(jobs: Sequence[tuple[int, str]], *, file: str) -> int:
    images = np.lib.format.open_memmap(file, mode="r+")
    start, size = jobs[0][0], images.shape[1]
    block = np.empty((len(jobs), size, size), dtype=np.uint8)
    for place, (_, path) in enumerate(jobs):
        image = read_grey(path)
        if image.shape != (size, size):
            raise DataError(
                f"{path}: {image.shape[1]} x {image.shape[0]} pixels, the first image has"
                f" {size} x {size}; resize the folder first"
            )
        block[place] = image
    # Written, not mapped: on a full disk a write fails, a touched page kills the process.
    with open(file, "r+b") as out:  # noqa: PTH123
        out.seek(images.offset + start * size * size)
        out.write(block.tobytes())
    return len(jobs)
