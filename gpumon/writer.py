"""The sampler's hand: appends lines to the trace, only what changed, and bears a full disk."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from gpumon.errors import printable
from gpumon.files import take

MOST_OWED = 100


def say(message: str) -> None:
    """One line to the program through standard output; a closed pipe is no reason to fail."""
    with contextlib.suppress(OSError):
        os.write(1, (printable(message) + "\n").encode())


class Writer:
    """Writes whole lines, one ``write`` each, unbuffered.

    A sample that could not be written is lost, and a gap: once the disk takes lines again, an
    event says since when and why, and the next sample names every series. Any other line is kept
    and written then.
    """

    def __init__(self, path: Path, file: int | None = None) -> None:
        self.ticks = 0
        self.missed = 0
        self._path = path
        self._file = take(path) if file is None else file
        self._last: list[float | None] = []
        self._owed: list[dict[str, Any]] = []
        self._trouble: str | None = None
        self._torn = False
        self._gap = False

    def sample(self, now: float, values: list[float | None]) -> None:
        """Append the values that differ from the last sample's; all of them the first time."""
        self._pay()
        parts = [f"{now:.4f}"]
        last = self._last
        whole = len(last) != len(values)
        for index, value in enumerate(values):
            if whole or value != last[index]:
                parts.append(f"{index},{'null' if value is None else f'{value:.10g}'}")
        if not self._owed and self._write("[" + ",".join(parts) + "]"):
            self._last = values.copy()
            self._gap = False
        else:
            self._last = []
            self._lost(now)

    def event(self, now: float, name: str, **details: Any) -> None:
        self.line({"t": round(now, 4), "event": name, **details})

    def line(self, value: dict[str, Any]) -> None:
        """Append a header or an event, after those that are still owed."""
        self._owed.append(value)
        del self._owed[MOST_OWED:]
        self._pay()

    def close(self) -> None:
        """One last try at what is owed."""
        self._pay()
        os.close(self._file)

    def _lost(self, now: float) -> None:
        """The first sample of a gap leaves an event to be written as soon as one can be."""
        if not self._gap:
            self._gap = True
            self.event(now, "gap", reason=f"the trace could not be written: {self._trouble}")

    def _pay(self) -> None:
        while self._owed and self._write(json.dumps(self._owed[0], ensure_ascii=False)):
            del self._owed[0]

    def _write(self, text: str) -> bool:
        # A newline first if the last line was torn, so that it spoils itself alone.
        # Half a character pair, which is no UTF-8, as the escape that JSON has for it.
        data = (("\n" if self._torn else "") + text + "\n").encode("utf-8", "backslashreplace")
        try:
            written = os.write(self._file, data)
            why = "the disk took only part of a line"
        except OSError as error:
            written, why = 0, error.strerror or str(error)
        if written < len(data):
            self._torn = self._torn or written > 0
            self._complain(why)
            return False
        self._torn = False
        return True

    def _complain(self, why: str) -> None:
        if self._trouble is None:
            say(
                f"warning: gpumon cannot write {self._path}: {why}; "
                "the program goes on, the chart will have a gap"
            )
        self._trouble = why
