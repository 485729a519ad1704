"""This module exports a trace as CSV or Chrome trace."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpumon.errors import MonitorError
from gpumon.recording import Recording
from gpumon.trace_files import write_atomically
from gpumon.words import gpu_name

FORMATS = ("csv", "json")
BASE = "baseTimeNanoseconds"
"""The field that says from when the microseconds count, as in the traces of torch.profiler."""
FIRST_PROCESS = 2_000_000_000
"""Numbers of devices, above those of processes."""
FIRST_THREAD = 1_000_000_000


def export(recording: Recording, target: str | os.PathLike[str]) -> Path:
    """See :meth:`gpumon.Trace.export`; the file appears whole or not at all."""
    path = Path(target)
    kind = path.suffix.lstrip(".").lower()
    if kind not in FORMATS:
        raise MonitorError(f"cannot export to {path}: no format {kind!r}; use .csv or .json")

    def write(file: Path) -> None:
        if kind == "json":
            file.write_text(json.dumps(_chrome_document(recording)), encoding="utf-8")
        else:
            _write_csv(recording, file)

    write_atomically(path, write)
    return path


def _write_csv(recording: Recording, path: Path) -> None:
    """One line a sample, with its wall time and outermost phase; what is not known is empty."""
    start, table = recording.header["start (unix s)"], recording.frame.copy()
    try:
        wall = pd.to_datetime((1e6 * (start + recording.times)).round(), unit="us", utc=True)
    except ValueError:
        raise MonitorError(
            f"cannot export {recording.prefix}: it begins {start} s after 1970, which is not a date"
        ) from None
    phase = np.full(len(table), "", dtype=object)
    for mark in recording.marks:
        if mark.depth == 0:
            first, last = np.searchsorted(recording.times, [mark.start, mark.end])
            phase[first:last] = mark.name
    table.insert(0, "wall time", wall.strftime("%Y-%m-%d %H:%M:%S.%f+00:00"))
    table.insert(1, "phase", phase)
    table.to_csv(path, float_format="%.9g", lineterminator="\n")


def _chrome_document(recording: Recording) -> dict[str, Any]:
    """The whole document in Chrome's trace format, ready for JSON."""
    return {
        BASE: int(recording.header["start (unix s)"] * 1e9),
        "traceEvents": [*_slices(recording), *_counters(recording)],
        "displayTimeUnit": "ms",
    }


def _slices(recording: Recording) -> Iterator[dict[str, Any]]:
    """A slice each; on one row of a process only those that nest, as the format wants it."""
    rows: dict[int, list[list[float]]] = {}
    for mark in recording.marks:
        process = mark.process if isinstance(mark.process, int) else 0
        known = rows.setdefault(process, [])
        place = _row(known, mark.start, mark.end)
        if place == len(known):
            known.append([])
            name = "gpumon phases" + (f" {place + 1}" if place else "")
            yield _meta("thread_name", process, name) | {"tid": FIRST_THREAD + place}
        known[place].append(mark.end)
        yield {
            "ph": "X",
            "cat": "gpumon",
            "name": mark.name,
            "pid": process,
            "tid": FIRST_THREAD + place,
            "ts": _micro(mark.start),
            "dur": _micro(mark.end - mark.start),
            "args": mark.attributes,
        }


def _row(rows: list[list[float]], start: float, end: float) -> int:
    """The first row that a slice nests in, or one more; rows: the ends of their open slices."""
    for place, ends in enumerate(rows):
        while ends and ends[-1] <= start:
            ends.pop()
        if not ends or end <= ends[-1]:
            return place
    return len(rows)


def _counters(recording: Recording) -> Iterator[dict[str, Any]]:
    """A counter each, where it changes; a gap is an event, because counters cannot be unknown."""
    processes: dict[str, int] = {}
    times = recording.times.tolist()
    for key in recording.keys:
        column = recording.series(key)
        if column is None:
            continue
        owner, _, quantity = key.partition("/")
        if owner not in processes:
            processes[owner] = FIRST_PROCESS + len(processes)
            yield _meta("process_name", processes[owner], f"gpumon: {gpu_name(owner)}")
        last = math.nan
        for moment, value in zip(times, column.tolist(), strict=True):
            if value != last and not math.isnan(value):
                yield {
                    "ph": "C",
                    "name": quantity,
                    "pid": processes[owner],
                    "tid": 0,
                    "ts": _micro(moment),
                    "args": {"value": value},
                }
            last = value
    for event in recording.events:
        yield {
            "ph": "i",
            "s": "g",
            "cat": "gpumon",
            "pid": FIRST_PROCESS,
            "tid": 0,
            "name": event["event"],
            "ts": _micro(event["t"]),
            "args": event,
        }


def _meta(name: str, process: int, text: str) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": process, "args": {"name": text}}


def _micro(seconds: float) -> float:
    return round(seconds * 1e6, 3)
