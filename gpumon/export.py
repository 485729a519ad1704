"""This module exports a trace as CSV, Parquet, Prometheus text or Chrome trace."""

from __future__ import annotations

import csv
import json
import math
import os
from bisect import bisect_left
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from gpumon import chrome_trace, metrics
from gpumon.atomic_write import write_atomically
from gpumon.compat import zip_strict
from gpumon.errors import MonitorError, required_for

if TYPE_CHECKING:
    import pandas as pd

    from gpumon.recording import Recording
    from gpumon.trace import Trace

FORMATS = ("csv", "parquet", "prom", "json")


def export(
    trace: Trace,
    target: str | os.PathLike[str],
    kind: str | None = None,
    profile: str | os.PathLike[str] | None = None,
) -> Path:
    """Write a trace to a file.

    CSV and Parquet contain every sample, with wall time and the outermost open phase; the
    Prometheus file contains the last value of each series, for a node exporter's textfile folder;
    the JSON file is Chrome's trace format, which Perfetto opens too.
    The file appears whole or not at all.

    Args:
        trace: what to write.
        target: the file.
        kind: ``csv``, ``parquet``, ``prom`` or ``json``; None: the target's ending.
        profile: for ``json``, a profile of torch.profiler that the file is to hold as well.

    Returns:
        The file.

    Raises:
        MonitorError: the kind is unknown, or the target cannot be written.
    """
    path = Path(target)
    kind = kind or path.suffix.lstrip(".").lower()
    if kind not in FORMATS:
        raise MonitorError(
            f"cannot export to {path}: no format {kind!r}; use .csv, .parquet, .prom or .json"
        )
    if profile is not None and kind != "json":
        raise MonitorError(f"cannot export to {path} with a profile: use .json")
    if kind == "parquet":
        with required_for("Parquet"):
            import pandas  # noqa: F401
            import pyarrow  # noqa: F401
    if kind == "prom":
        write_atomically(path, lambda file: file.write_text(prometheus(trace), encoding="utf-8"))
    elif kind == "json":
        text = json.dumps(
            chrome_trace.document(trace.recording, Path(profile) if profile else None)
        )
        write_atomically(path, lambda file: file.write_text(text, encoding="utf-8"))
    elif kind == "csv":
        write_atomically(path, lambda file: _write_csv(trace, file))
    else:
        table = _table(trace)
        write_atomically(path, lambda file: table.to_parquet(file))
    return path


def _write_csv(trace: Trace, path: Path) -> None:
    """One line a sample; what is not known is empty."""
    recording = trace.recording
    front = recording.times, _wall_times(recording), _phases(recording)
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["time (s)", "wall time", "phase", *recording.keys])
        for moment, wall, phase, *values in zip_strict(*front, *recording.columns):
            text = ("" if math.isnan(value) else f"{value:.6g}" for value in values)
            table.writerow([moment, wall.isoformat(" ", "microseconds"), phase, *text])


def _table(trace: Trace) -> pd.DataFrame:
    """The frame with wall time and phase in front."""
    frame = trace.to_pandas()
    frame.insert(0, "wall time", _wall_times(trace.recording))
    frame.insert(1, "phase", _phases(trace.recording))
    return frame


def _wall_times(recording: Recording) -> list[datetime]:
    """When each sample was taken, in UTC."""
    start = recording.header["start (unix s)"]
    try:
        return [datetime.fromtimestamp(start + moment, timezone.utc) for moment in recording.times]
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
    """The last value of every series in Prometheus' text format; see :mod:`gpumon.metrics`."""
    recording = trace.recording
    last = {
        key: column[-1] for key, column in zip_strict(recording.keys, recording.columns) if column
    }
    return metrics.prometheus(metrics.metrics(recording.header, last))
