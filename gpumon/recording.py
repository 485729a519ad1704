"""One trace in memory: times, a table of values, devices, events and marks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumon import gaps
from gpumon.files import read_marks, read_samples
from gpumon.lines import number

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
    until the next sample, NaN where a series is not available; a gap (:mod:`gpumon.gaps`) is a row
    of NaN and an event. damaged: lines that were left out because they could not be read.
    """

    prefix: Path
    header: dict[str, Any]
    times: Floats
    values: Floats
    events: list[dict[str, Any]]
    marks: list[Mark]
    end: float
    damaged: int = 0

    @property
    def gaps(self) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == "gap"]

    @property
    def sampled(self) -> Floats:
        """The moments at which samples were taken; ``times`` without the rows of the gaps."""
        return np.setdiff1d(self.times, [gap["t"] for gap in self.gaps])

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

    def known(self, device: str) -> npt.NDArray[np.bool_]:
        """At which of the times anything of a device is known; shape (n,)."""
        own = [place for place, key in enumerate(self.keys) if key.startswith(f"{device}/")]
        return np.asarray(~np.isnan(self.values[:, own]).all(axis=1))

    @property
    def devices(self) -> list[dict[str, Any]]:
        """GPUs first, hosts last."""
        return sorted(self.header["devices"], key=lambda device: device["kind"] == "host")

    @property
    def gpus(self) -> list[dict[str, Any]]:
        return [device for device in self.devices if device["kind"] != "host"]


def load(prefix: Path) -> Recording:
    """Read a trace's files, whole or cut off; MonitorError if there is none."""
    header, samples, events, damaged = read_samples(prefix)
    lines, foreign = read_marks(prefix)
    times, values = _table(samples, len(header["series"]))
    interval = header["interval (s)"]
    closing = [event["t"] for event in events if event["event"] == "end"]
    last = float(times[-1]) if len(times) else 0.0
    end = max(closing[-1] if closing else last + interval, last)
    marks = _marks(lines, header["start (monotonic s)"])
    # A program that outlives its sampler goes on without samples, which is a gap too.
    end = max([end, *(mark.end for mark in marks)])
    for mark in marks:
        mark.end = end if mark.open else mark.end
    noted = [event for event in events if event["event"] == "gap"]
    found = gaps.find(times.tolist(), end, interval, noted)
    starts = [gap["t"] for gap in found]
    places = np.searchsorted(times, starts, side="right")
    events = [event for event in events if event["event"] != "gap"] + found
    return Recording(
        prefix,
        header,
        np.insert(times, places, starts),
        np.insert(values, places, np.nan, axis=0),
        sorted(events, key=lambda event: event["t"]),
        marks,
        end,
        damaged + foreign,
    )


def _table(samples: list[list[Any]], count: int) -> tuple[Floats, Floats]:
    """Unfold the changes into a full table: a series not named has kept its value."""
    times = np.empty(len(samples))
    values = np.full((len(samples), count), np.nan)
    row = np.full(count, np.nan)
    for moment, line in enumerate(samples):
        times[moment] = line[0]
        for place in range(1, len(line), 2):
            value = line[place + 1]
            row[line[place]] = math.nan if value is None else value
        values[moment] = row
    return times, values


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
            if not number(attributes.get("images", 0), 0):
                del attributes["images"]  # no count, so nothing to count with
        else:
            _, moment, process, place = line
            closed = waiting.pop((process, place), None)
            if closed is not None:
                closed.end = max(moment / 1e9 - origin, closed.start)
                closed.open = False
    return sorted(marks, key=lambda mark: (mark.start, mark.depth))
