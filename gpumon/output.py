"""Files for the user: charts and exports appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from gpumon.errors import MonitorError


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Have ``write`` make the file under another name beside it, then rename it.

    Raises MonitorError if that cannot be, with nothing left behind and an older file as it was.
    """
    temporary = path.with_name(f".gpumon-{os.getpid()}{path.suffix}")
    try:
        write(temporary)
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise MonitorError(f"cannot write {path}: {error.strerror or error}") from error
        raise
