"""A Recording is one trace in memory: a table of values over time, devices, events and phases."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from gpumon.errors import MonitorError
from gpumon.stats import Floats, find_gaps
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

    frame: a row for each sample, by seconds since the start, and a column for each series of the
    header; a value holds until the next sample, and is NaN where it is not known. A gap
    (:mod:`gpumon.stats`) is a row of NaN and an event. damaged: lines that were left out because
    they could not be read.
    """

    prefix: Path
    header: dict[str, Any]
    frame: pd.DataFrame
    events: list[dict[str, Any]]
    marks: list[Mark]
    end: float
    damaged: int = 0

    @property
    def times(self) -> Floats:
        return self.frame.index.to_numpy(float)

    @property
    def step(self) -> float:
        """Seconds between two samples."""
        return float(self.header["interval (s)"])

    @property
    def gaps(self) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == "gap"]

    @property
    def sampled(self) -> Floats:
        """The moments at which samples were taken; ``times`` without the gaps' own."""
        return np.setdiff1d(self.times, [gap["t"] for gap in self.gaps])

    @property
    def keys(self) -> list[str]:
        return list(self.frame)

    def series(self, key: str) -> Floats | None:
        """The values of one key, or None where the trace has no such series or never a value."""
        if key not in self.frame or self.frame[key].isna().all():
            return None
        return self.frame[key].to_numpy()

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
    keys = [series["key"] for series in header["series"]]
    times: list[float] = []
    rows: list[Floats] = []
    events: list[dict[str, Any]] = []
    damaged = 0
    now = np.full(len(keys), NAN)
    for line in lines:
        if is_sample(line, len(keys)) and not (times and line[0] < times[-1]):
            now[line[1::2]] = line[2::2]  # what a line does not name keeps its value
            times.append(line[0])
            rows.append(now.copy())
            if len(rows) * len(keys) > MOST_READ:
                raise MonitorError(
                    f"the trace has more than {MOST_READ:,} values, which no recorder writes"
                )
        elif is_event(line):
            events.append(line)
        else:
            damaged += 1
    marked, clock, foreign = read_marks(prefix)
    if clock is not None:
        header = {**header, "clock offset": clock}
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
    found = find_gaps(times, end, step, noted) if keys else []
    starts = [gap["t"] for gap in found]
    places = np.searchsorted(times, starts, "right")
    values = np.vstack(rows) if rows else np.empty((0, len(keys)))
    frame = pd.DataFrame(
        np.insert(values, places, NAN, axis=0),
        index=pd.Index(np.insert(np.array(times), places, starts), name="time (s)"),
        columns=keys,
    )
    events = [event for event in events if event["event"] != "gap"] + found
    events.sort(key=lambda event: event["t"])
    return Recording(prefix, header, frame, events, marks, end, damaged + foreign)


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
