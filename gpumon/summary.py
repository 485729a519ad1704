"""One row per phase and device: what it did, for how long it idled, what it cost."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from gpumon import gaps, stats
from gpumon.errors import MonitorError
from gpumon.recording import Mark, Recording
from gpumon.throttle import SLOWING

WHOLE = "(all)"
NAN = float("nan")
COLUMNS = [
    "phase",
    "device",
    "count",
    "seconds",
    "measured (s)",
    "utilisation mean (%)",
    "utilisation p5 (%)",
    "utilisation p95 (%)",
    "idle share (%)",
    "SM activity mean (%)",
    "memory peak (MiB)",
    "power mean (W)",
    "energy (J)",
    "energy covers (s)",
    "slowed share (%)",
    "images",
    "images/s",
    "images/J",
    "utilisation imbalance (%)",
    "memory imbalance (%)",
]


def summarize(recordings: Iterable[Recording], by: str, idle_below: float) -> pd.DataFrame:
    """See :meth:`gpumon.Trace.summary`."""
    if by not in ("phase", "mark"):
        raise MonitorError(f"summary(by={by!r}): choose 'phase' (repeats joined) or 'mark'")
    rows: list[dict[str, Any]] = []
    for recording in recordings:
        for name, marks, whole in _groups(recording, by):
            rows += _rows(recording, name, marks, whole, idle_below, by == "mark")
    extra = [key for row in rows for key in row if key not in COLUMNS]
    table = pd.DataFrame(rows, columns=[*COLUMNS, *dict.fromkeys(extra)])
    table.attrs["idle below (%)"] = idle_below
    return table


def _groups(recording: Recording, by: str) -> list[tuple[str, list[Mark], bool]]:
    groups: dict[Any, tuple[str, list[Mark], bool]] = {}
    for number, mark in enumerate(recording.marks):
        group = groups.setdefault(number if by == "mark" else mark.name, (mark.name, [], False))
        group[1].append(mark)
    whole = Mark(WHOLE, 0.0, recording.end, 0, {})
    images = _counted_once(recording.marks)
    if images is not None:
        whole.attributes["images"] = images
    return [(WHOLE, [whole], True), *groups.values()]


def _counted_once(marks: list[Mark]) -> float | None:
    """Images of the whole run: where phases nest, only the outermost count is taken."""
    total: float | None = None
    counted: dict[int | str, tuple[str, float]] = {}
    for mark in marks:  # in order of their start, the outer before the inner
        if "images" not in mark.attributes:
            continue
        outer, end = counted.get(mark.process, ("", 0.0))
        if outer and mark.name.startswith(outer + "/") and mark.start <= end:
            continue
        counted[mark.process] = (mark.name, mark.end)
        total = (total or 0.0) + mark.attributes["images"]
    return total


def _rows(
    recording: Recording,
    name: str,
    marks: list[Mark],
    whole: bool,
    idle_below: float,
    each: bool,
) -> list[dict[str, Any]]:
    spans = stats.union([(mark.start, mark.end) for mark in marks])
    seconds = sum(end - start for start, end in spans)
    weights = stats.weights(recording.times, recording.end, spans)
    counted = [m.attributes["images"] for m in marks if "images" in m.attributes]
    images = float(sum(counted)) if counted else NAN
    common: dict[str, Any] = {
        "phase": name,
        "count": 1 if whole else len(marks),
        "seconds": seconds,
        "images": images,
        "images/s": images / seconds if seconds > 0 else NAN,
    }
    if each and not whole:
        common["start (s)"] = marks[0].start
        common |= {k: v for k, v in marks[0].attributes.items() if k not in COLUMNS}
    rows = []
    for device in recording.devices:
        rows.append(common | _figures(recording, device, spans, weights, idle_below))
    gpus = rows[: len(recording.gpus)]
    if gpus:
        together = _together(gpus, gaps.longest(recording.header["interval (s)"]))
        joules, covered = (together.get(key, NAN) for key in ("energy (J)", "energy covers (s)"))
        # What is not covered by the joules is left out of the images too.
        together["images/J"] = common["images/s"] * covered / joules if joules > 0 else NAN
        rows.insert(len(gpus), common | together)
    return rows


def _figures(
    recording: Recording,
    device: dict[str, Any],
    spans: list[stats.Span],
    weights: Any,
    idle_below: float,
) -> dict[str, Any]:
    name = device["name"]
    row: dict[str, Any] = {"device": name, "measured (s)": weights[recording.known(name)].sum()}
    busy = recording.series(f"{name}/{'cpu' if device['kind'] == 'host' else 'utilisation'} (%)")
    if busy is not None:
        row["utilisation mean (%)"] = stats.mean(busy, weights)
        row["utilisation p5 (%)"] = stats.quantile(busy, weights, 0.05)
        row["utilisation p95 (%)"] = stats.quantile(busy, weights, 0.95)
        row["idle share (%)"] = stats.share_below(busy, weights, idle_below)
    activity = recording.series(f"{name}/SM activity (%)")
    if activity is not None:
        row["SM activity mean (%)"] = stats.mean(activity, weights)
    memory = recording.series(f"{name}/memory used (MiB)")
    if memory is not None:
        row["memory peak (MiB)"] = stats.peak(memory, weights)
    power = recording.series(f"{name}/power (W)")
    if power is not None:
        row["power mean (W)"] = stats.mean(power, weights)
    bits = recording.series(f"{name}/throttle reasons (bits)")
    if bits is not None:
        slowed = np.where(np.isnan(bits), np.nan, (np.nan_to_num(bits).astype(int) & SLOWING) > 0)
        row["slowed share (%)"] = 100 * stats.mean(slowed, weights)
    counter = recording.series(f"{name}/energy (J)")
    if counter is not None:
        longest = gaps.longest(recording.header["interval (s)"])
        joules = stats.growth(recording.times, counter, spans, longest)
    elif power is not None:
        joules = stats.integral(power, weights)
    else:
        return row
    row["energy (J)"], row["energy covers (s)"] = joules
    return row


def _together(gpus: list[dict[str, Any]], longest: float) -> dict[str, Any]:
    """All GPUs as one: means of shares, sums of watts, joules and memory, and the imbalance.

    A sum needs every device, for the same time: where one lacks more than ``longest`` seconds that
    another has, as one does that was lost, the sum would look like a saving, so it is left out.
    """

    def known(key: str) -> list[float]:
        return [row[key] for row in gpus if not math.isnan(row.get(key, NAN))]

    def alike(key: str) -> bool:
        return len(known(key)) == len(gpus) and max(known(key)) - min(known(key)) <= longest

    row: dict[str, Any] = {"device": "gpus", "measured (s)": min(known("measured (s)"))}
    for key in (
        "utilisation mean (%)",
        "idle share (%)",
        "SM activity mean (%)",
        "slowed share (%)",
    ):
        if known(key):
            row[key] = sum(known(key)) / len(known(key))
    for key, covers in (
        ("memory peak (MiB)", "measured (s)"),
        ("power mean (W)", "measured (s)"),
        ("energy (J)", "energy covers (s)"),
    ):
        if len(known(key)) == len(gpus) and alike(covers):
            row[key] = sum(known(key))
    if "energy (J)" in row:
        row["energy covers (s)"] = min(known("energy covers (s)"))
    row["utilisation imbalance (%)"] = stats.imbalance(known("utilisation mean (%)"))
    row["memory imbalance (%)"] = stats.imbalance(known("memory peak (MiB)"))
    return row
