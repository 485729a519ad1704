"""Phases: what the program is doing, as cheap lines in an append-only file.

A mark is one ``write`` of one short line to a file opened with O_APPEND, so processes need no
lock and no queue between them, and what was marked is on disk if the program is killed.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import threading
import time
import warnings
from pathlib import Path
from types import TracebackType
from typing import Any

from gpumon.errors import MonitorError
from gpumon.files import marks_file

# Where `gpumon record` tells the program that it runs which trace is its own.
TRACE_VARIABLE = "GPUMON_TRACE"


def _plain(value: Any) -> Any:
    """JSON for the numbers of NumPy and the frameworks, and text for anything else."""
    item = getattr(value, "item", None)
    if callable(item):
        try:
            return item()
        except (TypeError, ValueError, RuntimeError):
            pass
    return str(value)


_encode = json.JSONEncoder(default=_plain).encode


class Marker:
    """Marks phases in a trace. It pickles, so worker processes of the same machine mark too.

    Get it by pickling a :class:`gpumon.Monitor` (as ``multiprocessing`` does with arguments), or
    from ``monitor.marker``. Pickled while a phase is open, the other process's phases nest in it.
    """

    def __init__(self, path: str | os.PathLike[str], inside: str = "") -> None:
        self.path = Path(path)
        self._inside = inside
        self._file = -1
        self._warned = False
        self._start()

    def _start(self) -> None:
        self._local = threading.local()
        self._numbers = itertools.count()
        self._names: dict[str, str] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"path": str(self.path), "inside": self.current}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["path"], state["inside"])  # type: ignore[misc]

    @property
    def current(self) -> str:
        """The open phase of this thread, as ``outer/inner``; empty outside all phases."""
        return getattr(self._local, "phase", self._inside)

    def phase(self, name: str, /, **attributes: Any) -> Phase:
        """A context manager that marks a phase.

        Attributes may be anything that JSON can hold; ``images`` (a count, of this process's own
        images) is used for images per second and per joule, ``epoch`` labels the bands.
        """
        if not isinstance(name, str) or not name:
            raise MonitorError(f"a phase needs a name such as 'train', not {name!r}")
        return Phase(self, name, attributes)

    def write(self, line: str) -> None:
        """Append one line; a disk that refuses it is told once and never stops the program."""
        try:
            if self._file < 0:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
                self._file = os.open(self.path, flags, 0o644)
            os.write(self._file, line.encode())
        except OSError as error:
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"gpumon cannot mark phases in {self.path}: {error.strerror}; "
                    "the program goes on without marks",
                    RuntimeWarning,
                    stacklevel=3,
                )

    def quoted(self, name: str) -> str:
        """The name as JSON; names repeat, so each is encoded once."""
        known = self._names.get(name)
        if known is None:
            if len(self._names) > 4096:
                self._names.clear()
            known = self._names[name] = json.dumps(name)
        return known

    def close(self) -> None:
        if self._file >= 0:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        self.close()


_recorded: list[Marker] = []


def phase(name: str, /, **attributes: Any) -> Phase | contextlib.AbstractContextManager[None]:
    """Mark a phase of a program that runs under ``gpumon record``; otherwise do nothing."""
    if not _recorded:
        path = os.environ.get(TRACE_VARIABLE)
        if not path:
            return contextlib.nullcontext()
        _recorded.append(Marker(marks_file(Path(path))))
    return _recorded[0].phase(name, **attributes)


class Phase:
    """One phase, open between ``__enter__`` and ``__exit__``; made by ``phase()``."""

    __slots__ = ("_attributes", "_marker", "_name", "_number", "_outer")

    def __init__(self, marker: Marker, name: str, attributes: dict[str, Any]) -> None:
        self._marker = marker
        self._name = name
        self._attributes = attributes
        self._number = -1
        self._outer = ""

    def __enter__(self) -> Phase:
        marker = self._marker
        outer = self._outer = marker.current
        full = f"{outer}/{self._name}" if outer else self._name
        marker._local.phase = full
        number = self._number = next(marker._numbers)
        tail = _encode(self._attributes) if self._attributes else "{}"
        # Taken last, so that the phase does not hold the cost of its own mark.
        now = time.monotonic_ns()
        marker.write(f'["B",{now},{os.getpid()},{number},{marker.quoted(full)},{tail}]\n')
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        now = time.monotonic_ns()
        marker = self._marker
        marker.write(f'["E",{now},{os.getpid()},{self._number}]\n')
        marker._local.phase = self._outer
