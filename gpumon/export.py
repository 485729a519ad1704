"""A trace for other tools: CSV, Parquet, and Prometheus' text format."""

from __future__ import annotations

import csv
import math
import os
import re
from bisect import bisect_left
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from gpumon.errors import MonitorError, needed_for
from gpumon.output import write_whole

if TYPE_CHECKING:
    import pandas as pd

    from gpumon.recording import Recording
    from gpumon.trace import Trace

FORMATS = ("csv", "parquet", "prom")

UNITS = {
    "%": ("percent", 1.0),
    "MiB": ("bytes", 2.0**20),
    "MiB/s": ("bytes_per_second", 2.0**20),
    "W": ("watts", 1.0),
    "J": ("joules", 1.0),
    "C": ("celsius", 1.0),
    "MHz": ("hertz", 1e6),
    "bits": ("bits", 1.0),
    "count": ("", 1.0),
}
# What only grows: Prometheus takes its rate, and wants to see it in the name.
COUNTERS = ("J",)


def export(trace: Trace, target: str | os.PathLike[str], kind: str | None = None) -> Path:
    """Write a trace to a file.

    CSV and Parquet contain every sample, with wall time and the outermost open phase; the
    Prometheus file contains the last value of each series, for a node exporter's textfile folder.
    The file appears whole or not at all.

    Args:
        trace: what to write.
        target: the file.
        kind: ``csv``, ``parquet`` or ``prom``; None: the target's ending.

    Returns:
        The file.

    Raises:
        MonitorError: the kind is unknown, or the target cannot be written.
    """
    path = Path(target)
    kind = kind or path.suffix.lstrip(".").lower()
    if kind not in FORMATS:
        raise MonitorError(
            f"cannot export to {path}: no format {kind!r}; use .csv, .parquet or .prom"
        )
    if kind == "parquet":
        with needed_for("Parquet"):
            import pandas  # noqa: F401
            import pyarrow  # noqa: F401
    if kind == "prom":
        write_whole(path, lambda file: file.write_text(prometheus(trace), encoding="utf-8"))
    elif kind == "csv":
        write_whole(path, lambda file: _write_csv(trace, file))
    else:
        table = _table(trace)
        write_whole(path, lambda file: table.to_parquet(file))
    return path


def _write_csv(trace: Trace, path: Path) -> None:
    """One line a sample; what is not known is empty."""
    recording = trace.recording
    front = recording.times, _wall_times(recording), _phases(recording)
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["time (s)", "wall time", "phase", *recording.keys])
        for moment, wall, phase, *values in zip(*front, *recording.columns, strict=True):
            told = ("" if math.isnan(value) else f"{value:.6g}" for value in values)
            table.writerow([moment, wall.isoformat(" ", "microseconds"), phase, *told])


def _table(trace: Trace) -> pd.DataFrame:
    """The frame with wall time and phase in front."""
    frame = trace.frame()
    frame.insert(0, "wall time", _wall_times(trace.recording))
    frame.insert(1, "phase", _phases(trace.recording))
    return frame


def _wall_times(recording: Recording) -> list[datetime]:
    """When each sample was taken, in UTC."""
    start = recording.header["start (unix s)"]
    try:
        return [datetime.fromtimestamp(start + moment, UTC) for moment in recording.times]
    except (ValueError, OverflowError, OSError):
        raise MonitorError(
            f"cannot export {recording.prefix}: it begins at {start} s since 1970, which is no date"
        ) from None


def _phases(recording: Recording) -> list[str]:
    """The outermost phase that was open at each sample; empty where there was none."""
    found = [""] * len(recording.times)
    for mark in recording.marks:
        if mark.depth == 0:
            first, last = (bisect_left(recording.times, t) for t in (mark.start, mark.end))
            found[first:last] = [mark.name] * (last - first)
    return found


def prometheus(trace: Trace) -> str:
    """The last value of every series in Prometheus' text format, in its base units.

    ``gpu0/memory used (MiB)`` becomes ``gpumon_memory_used_bytes{device="gpu0",...}``; a series
    that is not available is left out, as that format has it.
    """
    recording = trace.recording
    products = {device["name"]: device for device in trace.devices}
    metrics: dict[tuple[str, str], list[str]] = {}
    for key, column in zip(recording.keys, recording.columns, strict=True):
        value = column[-1] if column else math.nan
        found = re.fullmatch(r"(.+)/(.+) \((.+)\)", key)
        if found is None or math.isnan(value):
            continue
        device, quantity, unit = found.groups()
        labels = {"device": device, "host": trace.header["host"]}
        core = re.fullmatch(r"cpu(\d+)", quantity)
        if core:
            quantity, labels["core"] = "cpu core", core.group(1)
        for name in ("uuid", "product"):
            text = products.get(device, {}).get(name)
            if text:
                labels[name] = text
        suffix, factor = UNITS.get(unit, (unit, 1.0))
        owner = device.rpartition(":")[2]
        kind, ending = ("counter", "total") if unit in COUNTERS else ("gauge", "")
        owner = owner if owner in ("sampler", "process") else ""
        words = ["gpumon", owner, quantity, suffix, ending]
        metric = re.sub(r"[^a-z0-9_]+", "_", "_".join(filter(None, words)).lower())
        text = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
        metrics.setdefault((metric, kind), []).append(f"{metric}{{{text}}} {value * factor:.10g}")
    lines = []
    for (metric, kind), samples in metrics.items():
        lines += [f"# TYPE {metric} {kind}", *samples]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return str(text).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
