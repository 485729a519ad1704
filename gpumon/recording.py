"""A Recording is one trace in memory: a table of values over time, devices, events and phases.

A trace may have been cut off at any byte. A line that is not valid is left out and counted.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpumon.errors import MonitorError, printable
from gpumon.stats import Floats, find_gaps
from gpumon.trace_files import FORMAT, HUGE, MOST_VALUES, phases_file, samples_file

NAN = float("nan")
MOST_READ = 5 * MOST_VALUES
"""A recorder may have no room to thin its trace out."""
LONGEST_LINE = 16 * 2**20
MOST_SERIES = 10_000
TEXTS, NUMBERS = ("version", "host", "system"), ("start (monotonic s)", "start (unix s)")
AMOUNTS = ("memory total (MiB)", "power limit (W)", "cores")
"""Numbers that a device may have."""
EVENTS = {
    "failed": "series",
    "back": "series",
    "device lost": "device",
    "shared": "device",
    "gap": "reason",
}
"""The field that an event has in addition to its time."""
WRONG = (TypeError, ValueError, IndexError, KeyError, OverflowError, AttributeError)
"""What it raises to work with values that are not what they should be."""


@dataclass
class Span:
    """One phase of one process; start and end in seconds since the trace began.

    name: ``outer/inner``. open: it never ended.
    """

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

    frame: a row for each sample, by seconds since the start, and a column for each series; a value
    holds until the next sample, and is NaN where it is not known. damaged: lines that were left
    out.
    """

    prefix: Path
    header: dict[str, Any]
    frame: pd.DataFrame
    events: list[dict[str, Any]]
    spans: list[Span]
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
        """The values of one key, or None if the trace has no such series or never a value."""
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


def load(prefix: Path) -> Recording:
    """Read a trace's files, whole or cut off; MonitorError if there is none."""
    lines = _lines(samples_file(prefix))
    header, damaged = _header(lines, prefix), 0
    keys = [series["key"] for series in header["series"]]
    times: list[float] = []
    rows: list[Floats] = []
    events: list[dict[str, Any]] = []
    now = np.full(len(keys), NAN)
    for line in lines:
        try:
            if isinstance(line, list):
                moment = _moment(line[0], least=times[-1] if times else 0.0)
                now[line[1::2]] = line[2::2]  # what a line does not name keeps its value
                times.append(moment)
                rows.append(now.copy())
            else:
                line["t"] = _moment(line["t"])
                line[EVENTS.get(line["event"], "t")]
                events.append(line)
        except WRONG:
            damaged += 1
        if len(rows) * len(keys) > MOST_READ:
            raise MonitorError(
                f"the trace has more than {MOST_READ:,} values, which no recorder writes"
            )
    spans, clock, foreign = _spans(prefix, header["start (monotonic s)"])
    if clock is not None:
        header["clock offset"] = clock
    step = header["interval (s)"]
    closing = [event["t"] for event in events if event["event"] == "end"]
    last = times[-1] if times else 0.0
    end = max(closing[-1] if closing else last + step, last)
    # A program that outlives its sampler continues without samples, which is a gap too.
    end = max([end, *(span.end for span in spans)])
    for span in spans:
        span.end = end if span.open else span.end
    noted = [event for event in events if event["event"] == "gap"]
    # A rank that only marks phases has nothing to miss.
    found = find_gaps(times, end, step, noted) if keys else []
    starts = [gap["t"] for gap in found]
    places = np.searchsorted(times, starts, "right")
    values = np.vstack(rows) if rows else np.empty((0, len(keys)))
    values[~(np.abs(values) < HUGE)] = NAN
    frame = pd.DataFrame(
        np.insert(values, places, NAN, axis=0),
        index=pd.Index(np.insert(np.array(times), places, starts), name="time (s)"),
        columns=keys,
    )
    events = [event for event in events if event["event"] != "gap"] + found
    events.sort(key=lambda event: event["t"])
    return Recording(prefix, header, frame, events, spans, end, damaged + foreign)


def _lines(path: Path) -> Iterator[Any]:
    """Every whole line of a file, parsed; None for one that is no JSON.

    A last line without its end is being written, or was cut off by a kill, and is not damage.
    """
    decode = json.JSONDecoder(object_hook=_plain, parse_constant=lambda _: None).decode
    try:
        # Do not wait for a pipe that no process writes to.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise MonitorError(f"{path} is not a file that could hold a trace")
            while line := file.readline(LONGEST_LINE):
                if len(line) == LONGEST_LINE:
                    raise MonitorError(f"{path} is not a gpumon trace: one of its lines has no end")
                try:
                    yield decode(line.decode())
                except (ValueError, RecursionError):
                    if line.endswith(b"\n") and line.strip():
                        yield None
    except FileNotFoundError:
        pass
    except OSError as error:
        raise MonitorError(f"cannot read the trace {path}: {error.strerror}") from error


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """An object whose texts a terminal can show."""
    return {
        printable(name): printable(value) if isinstance(value, str) else value
        for name, value in fields.items()
    }


def _moment(value: Any, least: float = 0.0) -> float:
    """A number of seconds; ValueError or TypeError for what is none, or lies before another."""
    if isinstance(value, str) or not least <= value < HUGE:
        raise ValueError(f"{value!r} is not a number of seconds")
    return float(value)


def _header(lines: Iterator[Any], prefix: Path) -> dict[str, Any]:
    """The header, with numbers as numbers."""
    path, header = samples_file(prefix), next(lines, ())
    if not isinstance(header, dict) or "gpumon" not in header:
        what = "holds no whole line" if header == () else "has no header line"
        what = what if path.exists() else "does not exist"
        raise MonitorError(f"no trace at {prefix}: {path} {what}; give the path that Monitor got")
    if header["gpumon"] != FORMAT:
        raise MonitorError(
            f"{path} has trace format {header['gpumon']}, this gpumon reads {FORMAT}: update gpumon"
        )
    try:
        header |= {name: str(header[name]) for name in TEXTS}
        header |= {name: float(header[name]) for name in NUMBERS}
        header["interval (s)"] = _moment(header["interval (s)"], 1e-4)
        header = {"boot": None, "rank": None, **header, "nvml": dict(header["nvml"])}
        for device in header["devices"]:
            device |= {"name": str(device["name"]), "kind": str(device["kind"])}
            amounts = [name for name in AMOUNTS if device.get(name) is not None]
            device |= {name: 0 + device[name] for name in amounts}
        if len({str(series["key"]) for series in header["series"]}) > MOST_SERIES:
            raise ValueError(f"its header lists more than {MOST_SERIES} series")
    except KeyError as error:
        raise MonitorError(
            f"{path} is damaged, or not a gpumon trace: its header has no {error.args[0]}"
        ) from error
    except WRONG as error:
        raise MonitorError(f"{path} is damaged, or not a gpumon trace: {error}") from error
    return header


def _spans(prefix: Path, origin: float) -> tuple[list[Span], dict[str, Any] | None, int]:
    """The phases, those never closed open; the clocks' offset from another host; damaged lines."""
    spans: list[Span] = []
    waiting: dict[tuple[int, int], Span] = {}
    clock, damaged = None, 0
    for line in _lines(phases_file(prefix)):
        try:
            if isinstance(line, dict):
                if line["gpumon phases"] and "clock" in line:
                    clock = _offset(clock or line["clock"], line["clock"])
                continue
            kind, moment, process, place, *opening = line
            moment = _moment(moment / 1e9) - origin
            if kind == "B":
                name, attributes = printable(opening[0]), dict(opening[1])
                if not isinstance(attributes.get("items", 0), (int, float)):
                    del attributes["items"]  # no count, so nothing to count with
                span = Span(name, moment, moment, process, attributes, open=True)
                waiting[process, place] = span
                spans.append(span)
            elif (closed := waiting.pop((process, place), None)) is not None:
                closed.end, closed.open = max(moment, closed.start), False
        except WRONG:
            damaged += 1
    return sorted(spans, key=lambda span: (span.start, span.depth)), clock, damaged


def _offset(*both: dict[str, Any]) -> dict[str, Any]:
    """The clocks' offset while they drifted from one to the other: between the bounds of both."""
    ends = [one["ahead (s)"] + sign * one["within (s)"] for one in both for sign in (-1, 1)]
    least, most = min(ends), max(ends)
    return both[-1] | {"ahead (s)": (least + most) / 2, "within (s)": (most - least) / 2}
