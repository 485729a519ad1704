"""Write the files of a synthetic data set on all cores; an interrupted run starts again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

from data_prep.errors import DataError
from data_prep.files import (
    exclusive_lock,
    map_in_processes,
    read_json,
    remove_temporary_files,
    sync_filesystem,
    write_atomic,
    write_json,
)
from data_prep.prepared_folder import disk_error_text

BATCH = 8
SETTINGS_FILE = "demo.json"
#: Far more than a test needs; the labels of all images are in memory.
MAX_IMAGES = 1_000_000
LOCK_TIMEOUT = 600.0
"""Seconds that a process waits for another process that generates the same set."""

Job = TypeVar("Job")


def check_numbers(
    images: int,
    size: int,
    seed: int,
    *,
    fewest: int = 1,
    most: int = MAX_IMAGES,
    largest: int = 8192,
) -> None:
    """Raise `DataError` unless a set of so many images of this size can be generated."""
    if not fewest <= images <= most or not 16 <= size <= largest or seed < 0:
        raise DataError(
            f"images {images}, size {size}, seed {seed}: use {fewest} to {most:,} images, 16 to"
            f" {largest} pixels and a seed from 0"
        )


def write_synthetic_folder(
    folder: Path,
    settings: dict[str, Any],
    jobs: Mapping[str, Job],
    work: Callable[[Job], None],
    last: Mapping[str, bytes],
    *,
    num_workers: int | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Fill a folder: `work` writes the file of a job; the keys of `jobs` are their paths.

    `settings` are written to demo.json. The files `last` are written when all other files are on
    the disk, so a folder with these files is complete. Returns the settings, `written` (the number
    of finished jobs) and `seconds`.
    """
    started = time.monotonic()
    with exclusive_lock(folder, LOCK_TIMEOUT):
        remove_temporary_files(folder)
        before = read_json(folder / SETTINGS_FILE)
        if before is None and any(folder.iterdir()):
            raise DataError(f"{folder} contains other files; name an empty or a new folder")
        if before is not None and before != settings:
            raise DataError(
                f"{folder} contains another synthetic set ({before}); name another folder, or"
                " remove it"
            )
        places = sorted({os.path.dirname(path) for path in jobs})  # noqa: PTH120
        try:
            write_json(folder / SETTINGS_FILE, settings)
            for place in places:
                (folder / place).mkdir(parents=True, exist_ok=True)
                remove_temporary_files(folder / place)
            done = {path for path in jobs if (folder / path).is_file()}
            if not all((folder / name).exists() for name in last):
                done = set()  # a power cut may have emptied some files
            todo = [job for path, job in jobs.items() if path not in done]
            with tqdm(
                total=len(jobs),
                initial=len(done),
                desc="generate",
                unit=" files",
                disable=not progress or None,
            ) as bar:
                for written in map_in_processes(work, todo, BATCH, num_workers):
                    bar.update(len(written))
            sync_filesystem(folder)
            for name, data in last.items():
                write_atomic(folder / name, data, durable=True)
        except OSError as error:
            have = sum((folder / path).is_file() for path in jobs)
            raise DataError(disk_error_text(folder, error, have, len(jobs))) from None
    return {**settings, "written": len(todo), "seconds": time.monotonic() - started}
