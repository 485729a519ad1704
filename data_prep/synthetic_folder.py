"""Write the files of a synthetic data set on all cores; an interrupted run starts again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from data_prep import files
from data_prep.errors import DataError
from data_prep.prepared_folder import disk_error_text

BATCH = 8
SETTINGS_FILE = "demo.json"
#: Far more than a test needs; the labels of all images are in memory.
MAX_IMAGES = 2_000_000
LOCK_TIMEOUT = 600.0
"""Seconds that a process waits for another process that generates the same set."""

Job = TypeVar("Job")


def check_numbers(images: int, size: int, seed: int, *, fewest: int = 1) -> None:
    """Raise `DataError` unless a set of so many images of this size can be generated."""
    if not fewest <= images <= MAX_IMAGES or not 16 <= size <= 8192 or seed < 0:
        fix = f"use {fewest} to {MAX_IMAGES:,} images, 16 to 8192 pixels and a seed from 0"
        raise DataError(f"images {images}, size {size}, seed {seed}: {fix}")


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

    The files `last` come last, so a folder with them is complete. Returns the settings (of
    demo.json), `written` (the number of jobs) and `seconds`.
    """
    started = time.monotonic()
    with files.exclusive_lock(folder, LOCK_TIMEOUT):
        files.remove_temporary_files(folder)
        before = files.read_json(folder / SETTINGS_FILE)
        if before is None and any(folder.iterdir()):
            raise DataError(f"{folder} contains other files; name an empty or a new folder")
        if before is not None and before != settings:
            raise DataError(f"{folder} contains another synthetic set; name another folder")
        places = sorted({os.path.dirname(path) for path in jobs})  # noqa: PTH120
        try:
            files.write_json(folder / SETTINGS_FILE, settings)
            for place in places:
                (folder / place).mkdir(parents=True, exist_ok=True)
                files.remove_temporary_files(folder / place)
            done = {path for path in jobs if (folder / path).is_file()}
            if not all((folder / name).exists() for name in last):
                done = set()  # a power cut may have emptied some files
            todo = [job for path, job in jobs.items() if path not in done]
            writing = files.map_in_processes(work, todo, BATCH, num_workers)
            for _ in files.with_progress(writing, "generate", len(jobs), progress, len(done)):
                pass
            files.sync_filesystem(folder)
            for name, data in last.items():
                files.write_atomic(folder / name, data, durable=True)
        except OSError as error:
            have = sum((folder / path).is_file() for path in jobs)
            raise DataError(disk_error_text(folder, error, have, len(jobs))) from None
    return {**settings, "written": len(todo), "seconds": time.monotonic() - started}
