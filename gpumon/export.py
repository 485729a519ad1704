"""This module exports a trace as CSV or Chrome trace."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpumon.errors import MonitorError
from gpumon.recording import Recording
from gpumon.trace_files import write_atomically
from gpumon.words import gpu_name

FIRST_PROCESS = 2_000_000_000
"""Numbers of devices, above those of processes."""
FIRST_THREAD = 1_000_000_000


def export(recording: Recording, target: str | os.PathLike[str]) -> Path:
    """See :meth:`gpumon.Trace.export`; the file appears whole or not at all."""
    path = Path(target)
    writers = {".csv": _write_csv, ".json": _write_chrome}
    if path.suffix.lower() not in writers:
        raise MonitorError(f"cannot export to {path}: use .csv or .json")
    write_atomically(path, partial(writers[path.suffix.lower()], recording))
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
    for span in recording.spans:
        if span.depth == 0:
            first, last = np.searchsorted(recording.times, [span.start, span.end])
            phase[first:last] = span.name
    table.insert(0, "wall time", wall.strftime("%Y-%m-%d %H:%M:%S.%f+00:00"))
    table.insert(1, "phase", phase)
    table.to_csv(path, float_format="%.9g", lineterminator="\n")


def _write_chrome(recording: Recording, path: Path) -> None:
    document = {
        "baseTimeNanoseconds": int(recording.header["start (unix s)"] * 1e9),
        "traceEvents": [*_slices(recording), *_counters(recording)],
        "displayTimeUnit": "ms",
    }
    path.write_text(json.dumps(document), encoding="utf-8")


def _slices(recording: Recording) -> Iterator[dict[str, Any]]:
    """A slice each; on one row of a process only those that nest, as the format wants it."""
    rows: dict[int, list[list[float]]] = {}
    for span in recording.spans:
        process = span.process if isinstance(span.process, int) else 0
        known = rows.setdefault(process, [])
        place = _row(known, span.start, span.end)
        if place == len(known):
            known.append([])
            name = "gpumon phases" + (f" {place + 1}" if place else "")
            yield _meta("thread_name", process, name) | {"tid": FIRST_THREAD + place}
        known[place].append(span.end)
        length = {"dur": round((span.end - span.start) * 1e6, 3), "cat": "gpumon"}
        thread = FIRST_THREAD + place
        yield _event("X", span.name, process, span.start, span.attributes, tid=thread, **length)


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
                yield _event("C", quantity, processes[owner], moment, {"value": value})
            last = value
    for event in recording.events:
        yield _event("i", event["event"], FIRST_PROCESS, event["t"], event, s="g", cat="gpumon")


def _event(
    kind: str, name: str, process: int, moment: float, args: dict[str, Any], **more: Any
) -> dict[str, Any]:
    fields = {"ph": kind, "name": name, "pid": process, "tid": 0, "ts": round(moment * 1e6, 3)}
    return fields | {"args": args} | more


def _meta(name: str, process: int, text: str) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": process, "args": {"name": text}}
