"""This module converts a trace to Chrome's trace format, which Perfetto opens too.

Laid beside a profile of ``torch.profiler``: both go by wall time.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpumon.compat import zip_strict
from gpumon.errors import MonitorError
from gpumon.event_messages import gpu_name
from gpumon.recording import Recording

BASE = "baseTimeNanoseconds"
"""The field in which torch.profiler says from when its microseconds count."""
FIRST_PROCESS = 2_000_000_000
"""Numbers of devices, above those of processes."""
FIRST_THREAD = 1_000_000_000


def document(recording: Recording, profile: Path | None = None) -> dict[str, Any]:
    """The whole document, ready for JSON. profile: a file whose events it is to hold as well."""
    start = recording.header["start (unix s)"]
    whole: dict[str, Any] = {BASE: int(start * 1e9), "traceEvents": []}
    if profile is not None:
        whole = _profile(profile)
    shift = start - whole.get(BASE, 0) / 1e9
    whole["traceEvents"] += [*_phases(recording, shift), *_counters(recording, shift)]
    return whole | {"displayTimeUnit": "ms"}


def _profile(path: Path) -> dict[str, Any]:
    """A profile; one without a base counts from 1970, as older ones do."""
    try:
        data = path.read_bytes()
        content = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except OSError as error:
        raise MonitorError(f"cannot read the profile {path}: {error.strerror}") from error
    except (ValueError, EOFError, RecursionError) as error:
        raise MonitorError(f"{path} is no profile in Chrome's format: {error}") from error
    content = {"traceEvents": content} if isinstance(content, list) else content
    base = content.get(BASE, 0) if isinstance(content, dict) else None
    if not isinstance(base, (int, float)) or not isinstance(content.get("traceEvents"), list):
        raise MonitorError(f"{path} is no profile in Chrome's format: it has no list traceEvents")
    return dict(content)


def _phases(recording: Recording, shift: float) -> Iterator[dict[str, Any]]:
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
    for key, column in zip_strict(recording.keys, recording.columns):
        if all(map(math.isnan, column)):
            continue
        owner, _, quantity = key.partition("/")
        if owner not in processes:
            processes[owner] = FIRST_PROCESS + len(processes)
            yield _meta("process_name", processes[owner], f"gpumon: {gpu_name(owner)}")
        last = math.nan
        for moment, value in zip_strict(recording.times, column):
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
