"""This module opens the files of a trace, whose lines ``docs/gpumon.md`` describes.

The sampler alone writes ``PREFIX.jsonl``; every process that marks phases appends whole lines to
``PREFIX.marks.jsonl``. A line torn by a full disk is left out and counted. A last line that a kill
cut off is left out; what stands before it is whole.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpumon.errors import MonitorError
from gpumon.trace_format import (
    DAMAGED,
    check_header,
    is_mark,
    parse_lines,
)

if TYPE_CHECKING:
    from filelock import FileLock

SAMPLES = ".jsonl"
MARKS = ".marks.jsonl"


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


def hold(prefix: Path) -> FileLock:
    """Hold a trace for one writer alone, until the lock is released or the process ends.

    Raises MonitorError where another writes it.
    """
    from filelock import FileLock, Timeout  # not needed to read traces

    file = prefix.with_name(f".{prefix.name}.lock")
    lock = FileLock(file, timeout=0, thread_local=False)
    if file.is_symlink():
        file.unlink()  # never write through a link into another user's file
    try:
        lock.acquire()
    except Timeout:
        raise MonitorError(
            f"another monitor is writing the trace {prefix}; choose another path"
        ) from None
    except OSError:  # not every file system has locks
        pass
    return lock


def release(lock: FileLock) -> None:
    """Let another writer have the trace, and take away the lock's file while it is still held."""
    if lock.is_locked:
        Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


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


def read_lines(prefix: Path) -> Iterator[Any]:
    """The lines of a trace: its checked header first, then the others, None for a damaged one.

    Raises MonitorError where there is no trace.
    """
    path = samples_file(prefix)
    header, some, damaged = None, False, 0
    lines = parse_lines(path)
    for line in lines:
        if isinstance(line, dict) and "gpumon" in line:
            header = line
            break
        some = True
        damaged += 1
    if header is None:
        what = "has no header line" if some else "holds no whole line"
        what = what if path.exists() else "does not exist"
        raise MonitorError(f"no trace at {prefix}: {path} {what}; give the path that Monitor got")
    check_header(header, path)
    yield header
    yield from [None] * damaged
    for line in lines:
        yield None if line is DAMAGED else line


def read_marks(prefix: Path) -> tuple[list[list[Any]], dict[str, Any] | None, int]:
    """The mark lines of a trace in the order written, its clocks, and the damaged lines' number.

    Its clocks are how far they were ahead of another host's, where that was measured.
    """
    marks, clock, damaged = [], None, 0
    for line in parse_lines(marks_file(prefix)):
        if is_mark(line):
            marks.append(line)
        elif not isinstance(line, dict) or "gpumon marks" not in line:
            damaged += 1
        elif isinstance(line.get("clock"), dict):
            clock = line["clock"]
    return marks, clock, damaged


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
