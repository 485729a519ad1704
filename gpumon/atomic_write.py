"""This module writes files that appear complete or not at all, such as charts and exports."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from gpumon.errors import MonitorError


def temporary_path(path: Path, process: int) -> Path:
    """Where a process writes what is to become the file."""
    return path.with_name(f".gpumon-{process}{path.suffix}")


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Have ``write`` make the file under another name beside it, then rename it.

    Raises MonitorError if that cannot be, with nothing left behind and an older file as it was.
    """
    part = temporary_path(path, os.getpid())
    try:
        write(part)
        part.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            part.unlink()
        if isinstance(error, OSError):
            raise MonitorError(f"cannot write {path}: {error.strerror or error}") from error
        raise
