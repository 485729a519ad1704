"""This module exports a trace as CSV or Chrome trace."""

from __future__ import annotations

import csv
import json
import math
import os
from bisect import bisect_left
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpumon.errors import MonitorError, required_for
from gpumon.recording import Recording
from gpumon.trace_files import write_atomically
from gpumon.words import gpu_name

if TYPE_CHECKING:
    import pandas as pd


FORMATS = ("csv", "json")
BASE = "baseTimeNanoseconds"
"""The field that says from when the microseconds count, as in the traces of torch.profiler."""
FIRST_PROCESS = 2_000_000_000
"""Numbers of devices, above those of processes."""
FIRST_THREAD = 1_000_000_000


def export(
    recording: Recording,
    target: str | os.PathLike[str],
    kind: str | None = None,
) -> Path:
    """See :meth:`gpumon.Trace.export`; the file appears whole or not at all."""
    path = Path(target)
    kind = kind or path.suffix.lstrip(".").lower()
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
    """One line a sample; what is not known is empty."""
    front = recording.times, _wall_times(recording), _phases(recording)
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["time (s)", "wall time", "phase", *recording.keys])
        for moment, wall, phase, *values in zip(*front, *recording.columns):
            text = ("" if math.isnan(value) else f"{value:.6g}" for value in values)
            table.writerow([moment, wall.isoformat(" ", "microseconds"), phase, *text])


def to_pandas(recording: Recording) -> pd.DataFrame:
    """See :meth:`gpumon.Trace.to_pandas`."""
    with required_for("Trace.to_pandas()"):
        import numpy as np
        import pandas as pd

    index = pd.Index(np.asarray(recording.times), name="time (s)")
    values = np.empty((len(index), len(recording.columns)))
    for place, column in enumerate(recording.columns):
        values[:, place] = column
    return pd.DataFrame(values, index=index, columns=recording.keys)


def phases_to_pandas(recording: Recording) -> pd.DataFrame:
    """See :meth:`gpumon.Trace.phases`."""
    with required_for("Trace.phases()"):
        import pandas as pd

    columns = ["phase", "depth", "start (s)", "end (s)", "seconds", "process", "open"]
    rows = [
        {
            "phase": mark.name,
            "depth": mark.depth,
            "start (s)": mark.start,
            "end (s)": mark.end,
            "seconds": mark.end - mark.start,
            "process": mark.process,
            "open": mark.open,
            **{k: v for k, v in mark.attributes.items() if k not in columns},
        }
        for mark in recording.marks
    ]
    extra = dict.fromkeys(key for row in rows for key in row if key not in columns)
    return pd.DataFrame(rows, columns=[*columns, *extra])


def _wall_times(recording: Recording) -> list[datetime]:
    """When each sample was taken, in UTC."""
    start = recording.header["start (unix s)"]
    try:
        return [datetime.fromtimestamp(start + moment, timezone.utc) for moment in recording.times]
    except (ValueError, OverflowError, OSError):
        raise MonitorError(
            f"cannot export {recording.prefix}: it begins {start} s after 1970, which is not a date"
        ) from None


def _phases(recording: Recording) -> list[str]:
    """The outermost phase that was open at each sample; empty where there was none."""
    found = [""] * len(recording.times)
    for mark in recording.marks:
        if mark.depth == 0:
            first, last = (bisect_left(recording.times, t) for t in (mark.start, mark.end))
            found[first:last] = [mark.name] * (last - first)
    return found


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
    for key, column in zip(recording.keys, recording.columns):
        if all(map(math.isnan, column)):
            continue
        owner, _, quantity = key.partition("/")
        if owner not in processes:
            processes[owner] = FIRST_PROCESS + len(processes)
            yield _meta("process_name", processes[owner], f"gpumon: {gpu_name(owner)}")
        last = math.nan
        for moment, value in zip(recording.times, column):
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
