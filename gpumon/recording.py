"""A Recording is one trace in memory: times, values, devices, events and phases."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any, Protocol

from gpumon.errors import MonitorError
from gpumon.stats import find_gaps
from gpumon.trace_files import read_lines, read_marks
from gpumon.trace_format import MOST_VALUES, is_event, is_number, is_sample

NAN = float("nan")
MOST_READ = 5 * MOST_VALUES
"""A recorder may have no room to thin its trace out."""


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

    times: n moments in seconds since the start. columns: for each series of the header its n
    values, each holding until the next sample, NaN where the series is not available; a gap
    (:mod:`gpumon.stats`) is a NaN in every column and an event. damaged: lines that were
    left out because they could not be read. NumPy takes the arrays as they are, but nothing here
    needs it.
    """

    prefix: Path
    header: dict[str, Any]
    times: array[float]
    columns: list[array[float]]
    events: list[dict[str, Any]]
    marks: list[Mark]
    end: float
    damaged: int = 0

    @property
    def step(self) -> float:
        """Seconds between two samples."""
        return float(self.header["interval (s)"])

    @property
    def gaps(self) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == "gap"]

    @property
    def sampled(self) -> list[float]:
        """The moments at which samples were taken; ``times`` without the gaps' own."""
        return sorted(set(self.times) - {gap["t"] for gap in self.gaps})

    @property
    def keys(self) -> list[str]:
        return [series["key"] for series in self.header["series"]]

    def series(self, key: str) -> array[float] | None:
        """The values of one key, or None where the trace has no such series or never a value."""
        for name, column in zip(self.keys, self.columns):
            if name == key:
                return None if all(map(math.isnan, column)) else column
        return None

    def known(self, device: str) -> list[bool]:
        """Whether anything of a device is known, for each of the times."""
        own = [c for k, c in zip(self.keys, self.columns) if k.startswith(f"{device}/")]
        if not own:
            return [False] * len(self.times)
        return [not all(map(math.isnan, row)) for row in zip(*own)]

    @property
    def devices(self) -> list[dict[str, Any]]:
        """GPUs first, hosts last."""
        return sorted(self.header["devices"], key=lambda device: device["kind"] == "host")

    @property
    def gpus(self) -> list[dict[str, Any]]:
        return [device for device in self.devices if device["kind"] == "gpu"]


class Recorded(Protocol):
    """What has a recording, as a :class:`gpumon.Trace` has."""

    @property
    def recording(self) -> Recording: ...


def load(prefix: Path) -> Recording:
    """Read a trace's files, whole or cut off; MonitorError if there is none."""
    lines = read_lines(prefix)
    header = next(lines)
    table = Table(len(header["series"]))
    events: list[dict[str, Any]] = []
    damaged = table.take(lines, events)
    marked, clock, foreign = read_marks(prefix)
    if clock is not None:
        header = {**header, "clock offset": clock}
    times, columns = table.filled()
    step = header["interval (s)"]
    closing = [event["t"] for event in events if event["event"] == "end"]
    last = times[-1] if times else 0.0
    end = max(closing[-1] if closing else last + step, last)
    marks = _marks(marked, header["start (monotonic s)"])
    # A program that outlives its sampler continues without samples, which is a gap too.
    end = max([end, *(mark.end for mark in marks)])
    for mark in marks:
        mark.end = end if mark.open else mark.end
    noted = [event for event in events if event["event"] == "gap"]
    # A rank that only marks phases has nothing to miss.
    found = find_gaps(times, end, step, noted) if columns else []
    starts = [gap["t"] for gap in found]
    places = [bisect_right(times, start) for start in starts]
    events = [event for event in events if event["event"] != "gap"] + found
    return Recording(
        prefix,
        header,
        _with(times, places, starts),
        [_with(column, places, repeat(NAN)) for column in columns],
        sorted(events, key=lambda event: event["t"]),
        marks,
        end,
        damaged + foreign,
    )


class Table:
    """Whole columns from lines that name only what changed."""

    def __init__(self, count: int) -> None:
        self.times = array("d")
        self.columns = [array("d") for _ in range(count)]

    def take(self, lines: Iterable[Any], events: list[dict[str, Any]]) -> int:
        """Add the samples among the lines, and the events to ``events``; the number of others."""
        damaged = 0
        for line in lines:
            if len(self.times) * len(self.columns) > MOST_READ:
                raise MonitorError(
                    f"the trace has more than {MOST_READ:,} values, which no recorder writes"
                )
            if is_sample(line, len(self.columns)) and not (self.times and line[0] < self.times[-1]):
                self.add(line)
            elif is_event(line):
                events.append(line)
            else:
                damaged += 1
        return damaged

    def add(self, line: list[Any]) -> None:
        moment = len(self.times)
        for place in range(1, len(line), 2):
            column, value = self.columns[line[place]], line[place + 1]
            self._hold(column, moment)
            del column[moment:]  # a line may name a series twice: the last one counts
            column.append(NAN if value is None else value)
        self.times.append(line[0])

    def filled(self) -> tuple[array[float], list[array[float]]]:
        """Times and columns: a series that was not named has kept its value."""
        for column in self.columns:
            self._hold(column, len(self.times))
        return self.times, self.columns

    def _hold(self, column: array[float], moments: int) -> None:
        if len(column) < moments:
            column.extend(repeat(column[-1] if column else NAN, moments - len(column)))


def _with(column: array[float], places: Sequence[int], more: Iterable[float]) -> array[float]:
    """The column with one more value before each of the places, which are in order."""
    longer, done = column[:0], 0
    for place, value in zip(places, more):
        longer += column[done:place]
        longer.append(value)
        done = place
    return longer + column[done:]


def _marks(lines: list[list[Any]], origin: float) -> list[Mark]:
    """Pair the opening and closing lines; a phase never closed stays open, and has no length."""
    marks: list[Mark] = []
    waiting: dict[tuple[int, int], Mark] = {}
    for line in lines:
        if line[0] == "B":
            _, moment, process, place, name, attributes = line
            start = moment / 1e9 - origin
            mark = Mark(name, start, start, process, attributes, open=True)
            waiting[process, place] = mark
            marks.append(mark)
            if not is_number(attributes.get("items", 0), 0):
                del attributes["items"]  # no count, so nothing to count with
        else:
            _, moment, process, place = line
            closed = waiting.pop((process, place), None)
            if closed is not None:
                closed.end = max(moment / 1e9 - origin, closed.start)
                closed.open = False
    return sorted(marks, key=lambda mark: (mark.start, mark.depth))
