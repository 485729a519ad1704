"""This module names, creates, locks, finds and writes the files of a trace.

The sampler alone writes ``PREFIX.jsonl``; every process that marks phases appends whole lines to
``PREFIX.phases.jsonl``. ``docs/gpumon.md`` describes the lines.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Collection, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from gpumon.errors import MonitorError, printable

FORMAT = 1
VERSION = "0.2.0"
"""The version of gpumon, which each trace says."""
SAMPLES = ".jsonl"
PHASES = ".phases.jsonl"
MOST_VALUES = 20_000_000
"""The most values that a trace keeps: 160 MB once they are read."""
HUGE = 1e15
"""No time and no value of a trace comes near it."""
MOST_OWED = 2**20
"""Bytes that wait for a disk that takes nothing; more samples are lost, and a gap."""
LINES = 200
"""Lines that are read in a step."""


def gap_threshold(interval: float) -> float:
    """The longest time between samples that is not a gap: three intervals, and a little more."""
    return 3 * 1.05 * interval


def prefix_of(path: str | os.PathLike[str]) -> Path:
    """The prefix of a trace's files, given that prefix, a folder, or one of the files."""
    text = os.fspath(path)
    for ending in (PHASES, SAMPLES):
        if text.endswith(ending) and Path(text).name != ending:
            return Path(text[: -len(ending)])
    if text.endswith(os.sep) or Path(text).is_dir():
        return Path(text) / "trace"
    return Path(text)


def samples_file(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + SAMPLES)


def new_file(path: Path) -> Path:
    """The file to which a long trace is rewritten before it replaces the old one."""
    return path.with_name(f".{path.name}.new")


def phases_file(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + PHASES)


class Lock:
    """A trace held for one writer alone, until it is released or the process ends.

    Raises MonitorError where another writes it.
    """

    def __init__(self, prefix: Path) -> None:
        self._path = prefix.with_name(f".{prefix.name}.lock")
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
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
    files = [p for p in root.glob(pattern) if not p.name.endswith(PHASES)]
    if not files:
        raise MonitorError(f"no trace matches {text}; give the path that Monitor got")
    # Shorter names first, so that rank 10 comes after rank 2 and the unnumbered one leads.
    return sorted(map(prefix_of, files), key=lambda prefix: (len(str(prefix)), prefix))


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Have ``write`` make the file under another name beside it, then rename it.

    Raises MonitorError if that cannot be.
    """
    part = path.with_name(f".gpumon-{os.getpid()}{path.suffix}")
    try:
        write(part)
        part.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            part.unlink()
        if isinstance(error, OSError):
            raise MonitorError(f"cannot write {path}: {error.strerror or error}") from error
        raise


def send_message(message: str) -> None:
    """One line to the program through standard output; a closed pipe is not an error."""
    with contextlib.suppress(OSError):
        os.write(1, (printable(message) + "\n").encode())


class Writer:
    """Appends lines to a trace, without a buffer of its own but for what the disk refused.

    Above ``MOST_VALUES``, every second sample is dropped and ``interval``, in seconds, doubles.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = create(path)
        self._all = True
        self._owed = b""
        self._trouble: str | None = None
        self._gap = False
        self._header: dict[str, Any] = {}
        self._samples = 0
        self._thinning: Iterator[None] | None = None
        self.interval = 0.0

    def sample(self, now: float, values: list[float | None], changed: Collection[int]) -> None:
        """Append the values at the changed places; all of them the first time."""
        moment = round(now, 4)
        if len(self._owed) > MOST_OWED and not self._append(""):
            if not self._gap:
                self.event(now, "gap", reason=f"the trace could not be written: {self._trouble}")
            self._gap = self._all = True
            return
        self._gap = False
        line: list[Any] = [moment]
        for place in range(len(values)) if self._all else sorted(changed):
            line += place, values[place]
        self._all = False
        # As JSON, but faster: there are but numbers and None in it.
        self._append(repr(line).replace(" ", "").replace("None", "null") + "\n")
        self._count(len(values))

    def event(self, now: float, name: str, /, **details: Any) -> None:
        self.line({"t": round(now, 4), "event": name, **details})

    def line(self, value: dict[str, Any]) -> None:
        """Append a header or an event."""
        if "gpumon" in value:
            self._header, self.interval = value, value["interval (s)"]
        self._append(json.dumps(value, ensure_ascii=False) + "\n")

    def close(self) -> None:
        """One last try at what is owed."""
        self._append("")
        os.close(self._file)

    def _append(self, text: str) -> bool:
        """Write what is owed and the text, as far as the disk takes it; whether it took all."""
        # Half a character pair, which is no UTF-8, as the escape that JSON has for it.
        self._owed += text.encode("utf-8", "backslashreplace")
        try:
            self._owed = self._owed[os.write(self._file, self._owed) :]
            if self._owed:
                self._complain("the disk took only part of a line")
        except OSError as error:
            self._complain(error.strerror or str(error))
        return not self._owed

    def _count(self, series: int) -> None:
        """Count a sample; where there are too many, take a step to thin them out.

        To do it at once takes longer than the time between samples.
        """
        self._samples += 1
        if self._thinning is None and self._samples * series > MOST_VALUES:
            self._thinning = self._thin()
        if self._thinning is not None:
            try:
                next(self._thinning)
            except StopIteration:
                self._thinning = None
            except OSError as error:
                self._thinning, self._samples = None, 0  # until there are as many again
                self._complain(error.strerror or str(error))

    def _thin(self) -> Iterator[None]:
        """Write the file again without every second sample, and put it in the place of this one."""
        new = new_file(self._path)
        header = self._header | {
            "interval (s)": 2 * self._header["interval (s)"],
            "thinned": 2 * self._header.get("thinned", 1),
        }
        file = create(new)
        changed: dict[int, float | None] = {}
        samples = 0
        try:
            with os.fdopen(file, "wb", closefd=False) as out, self._path.open("rb") as lines:
                out.write(json.dumps(header, ensure_ascii=False).encode() + b"\n")
                lines.readline()
                for number, line in enumerate(lines):  # what is written meanwhile, too
                    if number % LINES == 0:
                        yield
                    if not line.startswith(b"["):
                        out.write(line)
                        continue
                    with contextlib.suppress(ValueError):  # a torn line
                        moment, *pairs = json.loads(line)
                        changed.update(zip(pairs[::2], pairs[1::2], strict=True))
                        if samples % 2 == 0:
                            kept = [moment, *chain.from_iterable(changed.items())]
                            out.write(json.dumps(kept, separators=(",", ":")).encode() + b"\n")
                            changed.clear()
                        samples += 1
            new.replace(self._path)
        except OSError:
            os.close(file)
            new.unlink(missing_ok=True)
            raise
        os.close(self._file)
        self._file, self._header = file, header
        self._all, self._samples = True, samples // 2
        self.interval = header["interval (s)"]

    def _complain(self, why: str) -> None:
        if self._trouble is None:
            send_message(
                f"warning: gpumon cannot write {self._path}: {why}; "
                "the program continues, the chart will have a gap"
            )
        self._trouble = why
