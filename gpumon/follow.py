"""Follow a trace that is being written: only what is new is read, however long it has grown."""

from __future__ import annotations

import json
import math
from collections import deque
from pathlib import Path
from typing import Any

from gpumon.errors import MonitorError
from gpumon.files import marks_file, samples_file


class Tail:
    """The whole new lines of a growing file since the last look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._rest = b""

    def lines(self) -> list[Any]:
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return []
        self._offset += len(data)
        *whole, self._rest = (self._rest + data).split(b"\n")
        values = []
        for line in whole:
            try:
                values.append(json.loads(line))
            except ValueError:
                continue
        return values


class Follower:
    """The latest values of a trace, a history of each, and the phases that are open."""

    def __init__(self, prefix: Path, history: int = 600) -> None:
        self.header: dict[str, Any] = {}
        self.now: dict[str, float] = {}
        self.time = 0.0
        self.ended: str | None = None
        self.history: dict[str, deque[float]] = {}
        self._keys: list[str] = []
        self._length = history
        self._samples = Tail(samples_file(prefix))
        self._marks = Tail(marks_file(prefix))
        self._open: dict[tuple[Any, Any], str] = {}
        self.poll()
        if not self.header:
            raise MonitorError(f"no trace at {prefix}; give the path that Monitor got")

    @property
    def phase(self) -> str:
        """The phase opened last that is still open; empty between phases."""
        return next(reversed(self._open.values()), "")

    def poll(self) -> bool:
        """Take in what is new; True if there was any."""
        new = False
        for line in self._samples.lines():
            if isinstance(line, list) and line and self.header:
                self._sample(line)
                new = True
            elif isinstance(line, dict) and "gpumon" in line:
                self.header = line
                self._keys = [series["key"] for series in line["series"]]
                self.history = {key: deque(maxlen=self._length) for key in self._keys}
            elif isinstance(line, dict) and line.get("event") == "end":
                self.ended = line["why"]
        for line in self._marks.lines():
            if isinstance(line, list) and line[0] == "B":
                self._open[line[2], line[3]] = line[4]
            elif isinstance(line, list) and line[0] == "E":
                self._open.pop((line[2], line[3]), None)
        return new

    def _sample(self, line: list[Any]) -> None:
        self.time = line[0]
        for place in range(1, len(line) - 1, 2):
            value = line[place + 1]
            self.now[self._keys[line[place]]] = math.nan if value is None else value
        for key, values in self.history.items():
            values.append(self.now.get(key, math.nan))
