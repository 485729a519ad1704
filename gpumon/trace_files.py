"""This module names, creates, locks and finds the files of a trace.

The sampler alone writes ``PREFIX.jsonl``; every process that marks phases appends whole lines to
``PREFIX.marks.jsonl``. ``docs/gpumon.md`` describes the lines.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from gpumon.errors import MonitorError

FORMAT = 1
VERSION = "0.2.0"
"""The version of gpumon, which each trace says."""
SAMPLES = ".jsonl"
MARKS = ".marks.jsonl"
MOST_VALUES = 20_000_000
"""The most values that a trace keeps: 160 MB once they are read."""
HUGE = 1e15
"""No time and no value of a trace comes near it."""


def gap_threshold(interval: float) -> float:
    """Seconds between two samples that are no gap yet: a value stands for three intervals.

    Samples come a little late, which alone must not make a gap.
    """
    return 3 * 1.05 * interval


def prefix_of(path: str | os.PathLike[str]) -> Path:
    """The prefix of a trace's files, given that prefix, a folder, or one of the files."""
    text = os.fspath(path)
    for ending in (MARKS, SAMPLES):
        if text.endswith(ending) and Path(text).name != ending:
            return Path(text[: -len(ending)])
    if text.endswith(os.sep) or Path(text).is_dir():
        return Path(text) / "trace"
    return Path(text)


def samples_file(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + SAMPLES)


def new_file(path: Path) -> Path:
    """Where a long trace's samples are written again, before they take the file's place."""
    return path.with_name(f".{path.name}.new")


def marks_file(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + MARKS)


class Lock:
    """A trace held for one writer alone, until it is released or the process ends.

    Raises MonitorError where another writes it.
    """

    def __init__(self, prefix: Path) -> None:
        self._path = prefix.with_name(f".{prefix.name}.lock")
        if self._path.is_symlink():
            self._path.unlink()  # never write through a link into another user's file
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise MonitorError(
                f"another monitor is writing the trace {prefix}; choose another path"
            ) from None
        except OSError:  # not every file system has locks
            pass

    def release(self) -> None:
        """Let another writer have the trace, and take away the file while it is still held."""
        self._path.unlink(missing_ok=True)
        os.close(self._file)


def create(path: Path) -> int:
    """Begin a file anew, whatever had its name; a link or a file with two names stays as it was."""
    path.unlink(missing_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)


def expand(path: str | os.PathLike[str]) -> list[Path]:
    """The prefixes that a path means: itself, or with ``*`` every trace that fits, in order."""
    text = os.fspath(path)
    if "*" not in text:
        return [prefix_of(path)]
    whole = Path(text.removesuffix(SAMPLES) + SAMPLES)
    root = Path(whole.anchor)
    pattern = str(whole.relative_to(root)).replace("[", "[[]")  # folders may be called so
    files = [p for p in root.glob(pattern) if not p.name.endswith(MARKS)]
    if not files:
        raise MonitorError(f"no trace matches {text}; give the path that Monitor got")
    # Shorter names first, so that rank 10 comes after rank 2 and the unnumbered one leads.
    return sorted(map(prefix_of, files), key=lambda prefix: (len(str(prefix)), prefix))


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
