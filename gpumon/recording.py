"""One trace in memory: times, a table of values, devices, events and marks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumon.files import read_marks, read_samples

Floats = npt.NDArray[np.float64]


@dataclass
class Mark:
    """One phase as marked: seconds since the trace's start, ``outer/inner`` name, attributes."""

    name: str
    start: float
    end: float
    process: int | str
    attributes: dict[str, Any]
    open: bool = False

    @property
    def depth(self) -> int:
        return self.name.count("/")


@dataclass
class Recording:
    """What one sampler wrote.

    times: seconds since the start, shape (n,). values: shape (n, series), each value holding
    until the next sample, NaN where a series is not available.
    """

    prefix: Path
    header: dict[str, Any]
    times: Floats
    values: Floats
    events: list[dict[str, Any]]
    marks: list[Mark]
    end: float

    @property
    def keys(self) -> list[str]:
        return [series["key"] for series in self.header["series"]]

    def series(self, key: str) -> Floats | None:
        """The values of one key, or None where the trace has no such series or never a value."""
        for index, series in enumerate(self.header["series"]):
            if series["key"] == key:
                column = self.values[:, index]
                return None if np.isnan(column).all() else column
        return None

    @property
    def devices(self) -> list[dict[str, Any]]:
        return list(self.header["devices"])

    @property
    def gpus(self) -> list[dict[str, Any]]:
        return [device for device in self.devices if device["kind"] != "host"]


def load(prefix: Path) -> Recording:
    """Read a trace's files, whole or cut off; MonitorError if there is none."""
    header, samples, events = read_samples(prefix)
    times, values = _table(samples, len(header["series"]))
    closing = [event["t"] for event in events if event["event"] == "end"]
    last = float(times[-1]) if len(times) else 0.0
    end = max(closing[-1] if closing else last + header["interval (s)"], last)
    marks = _marks(read_marks(prefix), header["start (monotonic s)"], end)
    return Recording(prefix, header, times, values, events, marks, end)


def _table(samples: list[list[Any]], count: int) -> tuple[Floats, Floats]:
    """Unfold the changes into a full table: a series not named has kept its value."""
    times = np.empty(len(samples))
    values = np.full((len(samples), count), np.nan)
    row = np.full(count, np.nan)
    for number, line in enumerate(samples):
        times[number] = line[0]
        for place in range(1, len(line) - 1, 2):
            if line[place] < count:
                value = line[place + 1]
                row[line[place]] = math.nan if value is None else value
        values[number] = row
    return times, values


def _marks(lines: list[list[Any]], origin: float, end: float) -> list[Mark]:
    """Pair the opening and closing lines; a phase never closed ends with the trace."""
    marks: list[Mark] = []
    waiting: dict[tuple[int, int], Mark] = {}
    for line in lines:
        if line[0] == "B" and len(line) == 6:
            _, moment, process, number, name, attributes = line
            mark = Mark(name, moment / 1e9 - origin, end, process, attributes, open=True)
            waiting[process, number] = mark
            marks.append(mark)
        elif line[0] == "E" and len(line) == 4:
            _, moment, process, number = line
            closed = waiting.pop((process, number), None)
            if closed is not None:
                closed.end, closed.open = moment / 1e9 - origin, False
    for mark in waiting.values():
        mark.end = max(mark.end, mark.start)
    return sorted(marks, key=lambda mark: (mark.start, mark.depth))
