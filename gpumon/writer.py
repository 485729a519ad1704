"""The sampler's hand: appends lines to the trace, only what changed, and bears a full disk."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from gpumon.files import hold


def say(message: str) -> None:
    """One line to the program through standard output; a closed pipe is no reason to fail."""
    with contextlib.suppress(OSError):
        os.write(1, (message.replace("\n", " ") + "\n").encode())


class Writer:
    """Writes whole lines, one ``write`` each, unbuffered.

    After a line that could not be written, the next sample names every series again, so what
    was lost is lost alone.
    """

    def __init__(self, path: Path) -> None:
        self.ticks = 0
        self.missed = 0
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        hold(self._file)
        self._last: list[float | None] = []
        self._owed: list[dict[str, Any]] = []
        self._torn = False
        self._warned = False

    def sample(self, now: float, values: list[float | None]) -> None:
        """Append the values that differ from the last sample's; all of them the first time."""
        if self._torn:
            self._last = []
            owed, self._owed = self._owed, []
            for event in owed:
                self.line(event)
        parts = [f"{now:.4f}"]
        last = self._last
        whole = len(last) != len(values)
        for index, value in enumerate(values):
            if whole or value != last[index]:
                parts.append(f"{index},{'null' if value is None else f'{value:.10g}'}")
        if self._write("[" + ",".join(parts) + "]"):
            self._last = values.copy()

    def event(self, now: float, name: str, **details: Any) -> None:
        self.line({"t": round(now, 4), "event": name, **details})

    def line(self, value: dict[str, Any]) -> None:
        if not self._write(json.dumps(value, ensure_ascii=False)) and len(self._owed) < 100:
            self._owed.append(value)

    def _write(self, text: str) -> bool:
        # A newline first if the last line was torn, so that it spoils itself alone.
        data = (("\n" if self._torn else "") + text + "\n").encode()
        try:
            whole = os.write(self._file, data) == len(data)
        except OSError as error:
            self._warn(error.strerror or str(error))
            whole = False
        else:
            if not whole:
                self._warn("the disk took only part of a line")
        self._torn = not whole
        return whole

    def _warn(self, why: str) -> None:
        if not self._warned:
            self._warned = True
            say(
                f"warning: gpumon cannot write {self._path}: {why}; "
                "the program goes on, the chart will have a gap"
            )
