"""A program marks its phases as lines that are appended to a file.

Each beginning and each end is one ``write`` of one line with O_APPEND, so processes need no lock
between them.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import json
import os
import time
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from gpumon.errors import MonitorError, warn
from gpumon.trace_files import phases_file

# `gpumon record` sets this environment variable to the trace of the program that it runs.
TRACE_VARIABLE = "GPUMON_TRACE"
Function = TypeVar("Function", bound=Callable[..., Any])
MOST_OWED = 2**20
"""Bytes of lines kept while the disk refuses them."""


def _plain(value: Any) -> Any:
    """JSON for the numbers of NumPy and the frameworks, and text for anything else."""
    with contextlib.suppress(AttributeError, TypeError, ValueError, RuntimeError):
        return value.item()
    return str(value)


def _attributes(attributes: dict[str, Any]) -> str:
    """Attributes as JSON; where it cannot hold one, their types. A phase never ends a program."""
    try:
        return json.dumps(attributes, default=_plain)
    except Exception:  # a key that is not text, a circle, and whatever an object raises
        return json.dumps({name: f"a {type(value).__name__}" for name, value in attributes.items()})


class Marker:
    """Mark phases in the trace of a Monitor, from any process on the same machine.

    Get it from ``monitor.marker``, or pass a :class:`gpumon.Monitor` to a worker process:
    ``multiprocessing`` pickles its arguments, and a pickled Monitor is a Marker. If a phase is open
    at that moment, the worker's phases nest in it.

    Args:
        path: the file that the phases are written to.
        parent: the phase that encloses all phases of this marker; empty: none.
    """

    def __init__(self, path: str | os.PathLike[str], parent: str = "") -> None:
        self.path = Path(path)
        self._parent = parent
        self._file = -1
        self._warned = False
        self._numbers = itertools.count()
        self._owed = b""

    def __reduce__(self) -> tuple[Any, ...]:
        return Marker, (str(self.path), self.current)

    @property
    def current(self) -> str:
        """The open phase of this thread or task, such as ``train/step``; empty if there is none."""
        phase = _still_open(self)
        return self._parent if phase is None else phase.path

    def phase(self, name: str, /, **attributes: Any) -> Phase:
        """Return a context manager that marks a phase.

        It is also a decorator: each call of the function is a phase.

        Args:
            name: the phase's name, such as ``"train"``.
            **attributes: any values, kept in the trace. ``items`` is the number of images, samples
                or tokens that this process handles in the phase; it gives items per second and per
                joule. ``epoch`` appears in the phase's label.

        Returns:
            The phase.

        Raises:
            MonitorError: the name is empty or not a string.
        """
        if not isinstance(name, str) or not name:
            raise MonitorError(
                f"phase({name!r}) is not valid: give the phase a name, such as phase('train')"
            )
        return Phase(self, name, attributes)

    def _write(self, line: str) -> None:
        """Append one line; what a full disk refuses is one warning, and goes before the next line.

        A line carries its own time, so it may come late.
        """
        self._owed = (self._owed + line.encode())[-MOST_OWED:]
        try:
            if self._file < 0:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
                self._file = os.open(self.path, flags, 0o644)
            self._owed = self._owed[os.write(self._file, self._owed) :]
            why = "the disk took only part of a line"
        except OSError as error:
            why = error.strerror or str(error)
        if self._owed and not self._warned:
            self._warned = True
            warn(
                f"gpumon cannot mark phases in {self.path}: {why}; "
                "the program continues, and the phases are written once they can be"
            )

    def write_clock_offset(self, offset: dict[str, Any]) -> None:
        """Store how far this host's clock is ahead of rank 0's; see :mod:`gpumon.launch`."""
        self._write(json.dumps({"gpumon phases": 1, "clock": offset}) + "\n")

    def close(self) -> None:
        """Write pending lines and close the file; a later phase opens it again."""
        if self._owed:
            self._write("")
        if self._file >= 0:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        self.close()


_recorded: list[Marker] = []


class NullPhase(contextlib.nullcontext[None]):
    def __call__(self, function: Function) -> Function:
        return function


def phase(name: str, /, **attributes: Any) -> Phase | NullPhase:
    """Return a context manager that marks a phase of a program under ``gpumon record``.

    Without ``gpumon record`` it does nothing, so the call can stay in the program.

    Args:
        name: the phase's name, such as ``"train"``.
        **attributes: see :meth:`gpumon.Marker.phase`.

    Returns:
        The phase, for a ``with`` statement or as a decorator.

    Raises:
        MonitorError: the name is empty or not a string, under ``gpumon record``.
    """
    if not _recorded:
        path = os.environ.get(TRACE_VARIABLE)
        if not path:
            return NullPhase()
        _recorded.append(Marker(phases_file(Path(path))))
    return _recorded[0].phase(name, **attributes)


class Phase(contextlib.ContextDecorator):
    """One phase of a program; create it with :meth:`gpumon.Monitor.phase`.

    The phase is open inside its ``with`` statement; as a decorator it marks each call.

    Attributes:
        outer: the phase of any marker that was open around this phase, or None.
        path: the full name, such as ``train/step``, once the phase is open.
    """

    __slots__ = ("_attributes", "_name", "_number", "marker", "open", "outer", "path")

    def __init__(self, marker: Marker, name: str, attributes: dict[str, Any]) -> None:
        self.marker = marker
        self.open = False
        self.outer: Phase | None = None
        self.path = name
        self._name = name
        self._attributes = attributes
        self._number = -1

    def __call__(self, function: Function) -> Function:
        refused = (
            inspect.isgeneratorfunction,
            inspect.isasyncgenfunction,
            inspect.iscoroutinefunction,
        )
        if any(is_one(function) for is_one in refused):
            raise MonitorError(
                f"the phase {self._name!r} can decorate neither a generator nor a coroutine: use "
                "`with` inside it"
            )
        return super().__call__(function)

    def _recreate_cm(self) -> Phase:
        """For each call of a decorated function."""
        return Phase(self.marker, self._name, self._attributes)

    def __enter__(self) -> Phase:
        if self.open:
            raise MonitorError(
                f"the phase {self._name!r} is open already: create a phase for each use"
            )
        inside = self.marker.current
        self.outer = _still_open()
        self.path = f"{inside}/{self._name}" if inside else self._name
        self.open = True
        _innermost.set(self)
        self._number = next(self.marker._numbers)
        tail = f"{self._number},{json.dumps(self.path)},{_attributes(self._attributes)}"
        # Taken last, so that the phase does not contain the cost of writing its own line.
        self.marker._write(f'["B",{time.monotonic_ns()},{os.getpid()},{tail}]\n')
        return self

    def __exit__(self, *_: object) -> None:
        now = time.monotonic_ns()
        self.marker._write(f'["E",{now},{os.getpid()},{self._number}]\n')
        self.open = False
        _innermost.set(_still_open())


# A context variable, because every thread and every task of asyncio has its own. That phases know
# which of them are open, rather than being put back, holds them right whatever order they end in.
_innermost: ContextVar[Phase | None] = ContextVar("gpumon's innermost phase", default=None)


def _still_open(marker: Marker | None = None) -> Phase | None:
    """The innermost phase, of any marker or of one, that is open in this thread or task."""
    phase = _innermost.get()
    while phase is not None and not (phase.open and marker in (None, phase.marker)):
        phase = phase.outer
    return phase
