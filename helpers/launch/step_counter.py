"""Count a rank's steps and record where its main thread is, for the report of a hang."""

import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import main_thread
from types import FrameType

from helpers.launch import run_files

EVERY_SECONDS = 1.0


class _Taken:
    steps = 0


def step() -> None:
    """One was taken."""
    _Taken.steps += 1


def say_where(path: Path) -> None:
    """Every second, into a file, how many were taken and where the main thread is."""
    main = main_thread()
    while main.is_alive():
        frame = sys._current_frames().get(main.ident or 0)
        with suppress(OSError):
            run_files.write(path, {"steps": _Taken.steps, "where": _where(frame)})
        time.sleep(EVERY_SECONDS)


def _where(frame: FrameType | None) -> str:
    """``all_reduce, distributed_c10d.py:2810``: the innermost frame."""
    if frame is None:
        return "nowhere"
    return f"{frame.f_code.co_name}, {Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
