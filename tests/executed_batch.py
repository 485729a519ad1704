"""A batch that a test runs by the command that users type, under the checkout's own runs/."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from helpers import paths


@contextmanager
def folder_of(name: str) -> Iterator[Path]:
    """The batch's folder, not there yet; afterwards it is gone, and ``latest`` as it was."""
    folder, latest = paths.RUNS / name, paths.RUNS / "latest"
    shutil.rmtree(folder, ignore_errors=True)  # of a test that was killed
    before = latest.readlink() if latest.is_symlink() else None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        latest.unlink(missing_ok=True)
        if before is not None:
            latest.symlink_to(before)
