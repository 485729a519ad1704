"""The trace on disk: two append-only text files beside each other.

``PREFIX.jsonl`` is written by the sampler alone. One JSON value a line:

* the first line, an object, is the header: clock, host, devices, and every series with its key
  (unit included), the API it is read with, its cadence, and why it is missing if it is;
* a list ``[t, i, v, i, v, ...]`` is a sample: at ``t`` seconds since the start, series ``i`` has
  changed to ``v`` (``null``: not available). A series that is not named has kept its value, so
  a trace costs bytes only for what moves;
* any later object is an event: a series lost or back, a device lost, the end.

``PREFIX.marks.jsonl`` is written by every process that marks phases, with O_APPEND:
``["B", t, pid, number, "train/step", {attributes}]`` opens a phase and ``["E", t, pid, number]``
closes it; ``t`` is the machine's monotonic clock in nanoseconds, the same in all processes.

A line torn by a kill or a full disk is skipped; what stands before it is whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from pathlib import Path
from typing import Any

from gpumon.errors import MonitorError

FORMAT = 1
SAMPLES = ".jsonl"
MARKS = ".marks.jsonl"


def prefix_of(path: str | os.PathLike[str]) -> Path:
    """The prefix of a trace's files, given that prefix, a folder, or one of the files."""
    text = os.fspath(path)
    for ending in (MARKS, SAMPLES):
        if text.endswith(ending):
            return Path(text[: -len(ending)])
    if text.endswith(os.sep) or Path(text).is_dir():
        return Path(text) / "trace"
    return Path(text)


def samples_file(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + SAMPLES)


def marks_file(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + MARKS)


def hold(file: int) -> None:
    """Mark an open file as being written by this process, for as long as it lives."""
    with contextlib.suppress(OSError):  # not every file system has locks
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def in_use(path: Path) -> bool:
    """Whether a living process holds a file."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(file)
    return False


def expand(path: str | os.PathLike[str]) -> list[Path]:
    """The prefixes that a path means: itself, or with ``*`` every trace that fits, in order."""
    text = os.fspath(path)
    if "*" not in text:
        return [prefix_of(path)]
    pattern = Path(text.removesuffix(SAMPLES) + SAMPLES)
    files = [p for p in pattern.parent.glob(pattern.name) if not p.name.endswith(MARKS)]
    if not files:
        raise MonitorError(f"no trace fits {text}; give the path that Monitor got")
    # Shorter names first, so that rank 10 comes after rank 2 and the unnumbered one leads.
    return sorted(map(prefix_of, files), key=lambda prefix: (len(prefix.name), prefix.name))


def read_lines(path: Path) -> list[Any]:
    """Every whole JSON line of a file; broken ones (a kill, a full disk) are left out."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise MonitorError(f"cannot read the trace {path}: {error.strerror}") from error
    values = []
    for line in data.split(b"\n"):
        if line:
            try:
                values.append(json.loads(line))
            except ValueError:
                continue
    return values


def read_samples(prefix: Path) -> tuple[dict[str, Any], list[list[Any]], list[dict[str, Any]]]:
    """Header, sample lines and events of a trace; a MonitorError if there is no trace."""
    path = samples_file(prefix)
    lines = read_lines(path)
    if not lines:
        what = "holds no whole line" if path.exists() else "does not exist"
        raise MonitorError(f"no trace at {prefix}: {path} {what}; give the path that Monitor got")
    header = next((h for h in lines if isinstance(h, dict) and "gpumon" in h), None)
    if header is None:
        raise MonitorError(f"{path} is not a gpumon trace: it has no header line")
    if header["gpumon"] > FORMAT:
        raise MonitorError(
            f"{path} has trace format {header['gpumon']}, this gpumon reads up to {FORMAT}: "
            "update gpumon"
        )
    samples = [line for line in lines if isinstance(line, list) and line]
    events = [line for line in lines if isinstance(line, dict) and "event" in line]
    return header, samples, events


def read_marks(prefix: Path) -> list[list[Any]]:
    """The mark lines of a trace, in the order written; empty where nothing was marked."""
    return [line for line in read_lines(marks_file(prefix)) if isinstance(line, list)]
