"""Follow a trace that is being written: only what is new is read, however long it has grown."""

from __future__ import annotations

import contextlib
import math
from collections import deque
from pathlib import Path
from typing import Any

from gpumon.files import marks_file, read_samples, samples_file
from gpumon.gaps import longest
from gpumon.lines import Damaged, is_event, is_mark, is_sample, parse


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
            with contextlib.suppress(Damaged):
                values.append(parse(line))
        return values


class Follower:
    """The latest values of a trace, a history of each, and the phases that are open."""

    def __init__(self, prefix: Path, history: int = 600) -> None:
        self.header = read_samples(prefix)[0]
        self.now: dict[str, float] = {}
        self.time = 0.0
        self.ended: str | None = None
        self.lost: set[str] = set()
        self._keys = [series["key"] for series in self.header["series"]]
        self.history: dict[str, deque[float]] = {key: deque(maxlen=history) for key in self._keys}
        self._samples = Tail(samples_file(prefix))
        self._marks = Tail(marks_file(prefix))
        self._open: dict[tuple[Any, Any], str] = {}
        self.poll()

    @property
    def phase(self) -> str:
        """The phase opened last that is still open; empty between phases."""
        return next(reversed(self._open.values()), "")

    def poll(self) -> bool:
        """Take in what is new; True if there was any."""
        new = False
        for line in self._samples.lines():
            if is_sample(line, len(self._keys)):
                self._sample(line)
                new = True
            elif is_event(line, len(self._keys)):
                self._event(line)
        for line in filter(is_mark, self._marks.lines()):
            if line[0] == "B":
                self._open[line[2], line[3]] = line[4]
            else:
                self._open.pop((line[2], line[3]), None)
        return new

    def silent(self, moment: float) -> float:
        """Seconds without a sample until ``moment`` (unix s), where that is a gap; else 0."""
        since = moment - self.header["start (unix s)"] - self.time
        return since if self.ended is None and since > longest(self._interval) else 0.0

    @property
    def _interval(self) -> float:
        return float(self.header["interval (s)"])

    def _event(self, event: dict[str, Any]) -> None:
        if event["event"] == "end":
            self.ended = event["why"]
        elif event["event"] == "device lost":
            self.lost.add(event["device"])

    def _sample(self, line: list[Any]) -> None:
        missed = 0
        if line[0] - self.time > longest(self._interval):
            missed = round((line[0] - self.time) / self._interval) - 1
        self.time = line[0]
        for place in range(1, len(line), 2):
            value = line[place + 1]
            self.now[self._keys[line[place]]] = math.nan if value is None else value
        for key, values in self.history.items():
            values.extend([math.nan] * min(missed, values.maxlen or 0))
            values.append(self.now.get(key, math.nan))
