"""This module exports a trace as CSV or Chrome trace."""

from __future__ import annotations

import csv
import gzip
import json
import math
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import replace
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
"""The field in which torch.profiler says from when its microseconds count."""
FIRST_PROCESS = 2_000_000_000
"""Numbers of devices, above those of processes."""
FIRST_THREAD = 1_000_000_000


def export(
    recording: Recording,
    target: str | os.PathLike[str],
    kind: str | None = None,
    profile: str | os.PathLike[str] | None = None,
    window: tuple[float, float] | None = None,
) -> Path:
    """See :meth:`gpumon.Trace.export`; the file appears whole or not at all."""
    recording = recording if window is None else _within(recording, *window)
    path = Path(target)
    kind = kind or path.suffix.lstrip(".").lower()
    if kind not in FORMATS:
        raise MonitorError(f"cannot export to {path}: no format {kind!r}; use .csv or .json")
    if profile is not None and kind != "json":
        raise MonitorError(f"cannot export to {path} with a profile: use .json")

    def write(file: Path) -> None:
        if kind == "json":
            document = chrome_document(recording, Path(profile) if profile else None)
            file.write_text(json.dumps(document), encoding="utf-8")
        else:
            _write_csv(recording, file)

    write_atomically(path, write)
    return path


def _within(recording: Recording, start: float, end: float) -> Recording:
    """What a recording says of these seconds, from the sample that held at their start."""
    first = max(0, bisect_right(recording.times, start) - 1)
    kept = slice(first, bisect_right(recording.times, end))
    return replace(
        recording,
        times=recording.times[kept],
        columns=[column[kept] for column in recording.columns],
        events=[event for event in recording.events if start <= event["t"] <= end],
        marks=[
            replace(mark, start=max(mark.start, start), end=min(mark.end, end))
            for mark in recording.marks
            if mark.start < end and mark.end > start
        ],
    )


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


def chrome_document(recording: Recording, profile: Path | None = None) -> dict[str, Any]:
    """The whole document in Chrome's trace format, ready for JSON.

    profile: a file of ``torch.profiler`` whose events it is to hold as well; both go by wall time.
    """
    start = recording.header["start (unix s)"]
    whole: dict[str, Any] = {BASE: int(start * 1e9), "traceEvents": []}
    if profile is not None:
        whole = read_profile(profile)
    shift = start - whole.get(BASE, 0) / 1e9
    whole["traceEvents"] += [*_slices(recording, shift), *_counters(recording, shift)]
    timed = [event for event in whole["traceEvents"] if _is_timed(event)]
    first = min((event["ts"] for event in timed), default=0)
    if first < 0:  # the recording began before the profile, and Perfetto drops what is before 0
        for event in timed:
            event["ts"] -= first
        whole[BASE] = whole.get(BASE, 0) + round(first * 1e3)
    return whole | {"displayTimeUnit": "ms"}


def _is_timed(event: object) -> bool:
    return isinstance(event, dict) and isinstance(event.get("ts"), (int, float))


def read_profile(path: Path) -> dict[str, Any]:
    """A profile in Chrome's format; one without a base counts from 1970, as older ones do."""
    try:
        data = path.read_bytes()
        content = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except OSError as error:
        raise MonitorError(f"cannot read the profile {path}: {error.strerror}") from error
    except (ValueError, EOFError, RecursionError) as error:
        raise MonitorError(f"{path} is not a profile in Chrome's format: {error}") from error
    content = {"traceEvents": content} if isinstance(content, list) else content
    base = content.get(BASE, 0) if isinstance(content, dict) else None
    if not isinstance(base, (int, float)) or not isinstance(content.get("traceEvents"), list):
        raise MonitorError(
            f"{path} is not a profile in Chrome's format: it has no list traceEvents"
        )
    return dict(content)


def _slices(recording: Recording, shift: float) -> Iterator[dict[str, Any]]:
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
            "ts": _micro(mark.start + shift),
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


def _counters(recording: Recording, shift: float) -> Iterator[dict[str, Any]]:
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
                    "ts": _micro(moment + shift),
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
            "ts": _micro(event["t"] + shift),
            "args": event,
        }


def _meta(name: str, process: int, text: str) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": process, "args": {"name": text}}


def _micro(seconds: float) -> float:
    return round(seconds * 1e6, 3)
