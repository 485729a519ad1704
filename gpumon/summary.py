"""This module computes the summary table, which has one row for each phase and device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from gpumon import stats
from gpumon.errors import MonitorError
from gpumon.phase_metrics import HostShare, host_share, throttled
from gpumon.recording import NAN, Mark, Recording
from gpumon.trace_format import gap_threshold
from gpumon.words import Row

WHOLE = "(all)"
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
    "throttled share (%)",
    "items",
    "items/s",
    "items/J",
    "utilisation imbalance (%)",
    "memory imbalance (%)",
]
"""The table's order; a row's other columns come behind these."""
SERIES = {
    "busy": "utilisation (%)",
    "activity": "SM activity (%)",
    "memory": "memory used (MiB)",
    "power": "power (W)",
    "throttled": "throttle reasons (bits)",
    "energy": "energy (J)",
    "others' memory": "memory others (MiB)",
    "others' use": "SM use others (%)",
    "others": "other processes (count)",
}


def summarize(recording: Recording, by: str, idle_threshold: float) -> pd.DataFrame:
    """See :meth:`gpumon.Trace.summary`."""
    rows = rows_of(recording, by, idle_threshold)
    extra = [key for row in rows for key in row if key not in COLUMNS]
    return pd.DataFrame(rows, columns=[*COLUMNS, *dict.fromkeys(extra)])


def table_text(table: pd.DataFrame) -> str:
    """The table for a terminal of 80 columns, without the columns in which nothing is known."""
    shown = table.set_index(["phase", "device"]).dropna(axis=1, how="all")
    return shown.to_string(line_width=80, na_rep="", float_format=_figure)


def _figure(value: float) -> str:
    return (
        f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if value >= 1 else f"{value:.3g}"
    )


def rows_of(recording: Recording, by: str, idle_threshold: float) -> list[Row]:
    """The rows of the table, each without what it has no figure for."""
    if by not in ("phase", "repeat", "mark"):
        raise MonitorError(
            f"summary(by={by!r}): choose 'phase' to join repeats, 'repeat' to join ranks, or 'mark'"
        )
    if not 0 <= idle_threshold <= 100:
        raise MonitorError(
            f"--idle-threshold (in Python idle_threshold) is {idle_threshold}: give a percentage, "
            "0 to 100"
        )
    known = [_known(recording, device) for device in recording.devices]
    rows: list[Row] = []
    for name, marks, whole in _groups(recording, by):
        rows += _rows(recording, known, name, marks, whole, idle_threshold, by == "mark")
    return rows


@dataclass
class _Known:
    """What is the same of a device in all phases, and is looked up once.

    series: by the keys of ``SERIES``, those that have values. measured: whether anything of it is
    known, for each of the times. counted, counter: moments and values of its joule counter.
    """

    device: dict[str, Any]
    series: dict[str, stats.Floats]
    measured: npt.NDArray[np.bool_]
    counted: stats.Floats
    counter: stats.Floats
    mine: HostShare | None = None


def _known(recording: Recording, device: dict[str, Any]) -> _Known:
    name = device["name"]
    wanted = {key: f"{name}/{of}" for key, of in SERIES.items()}
    if device["kind"] == "host":
        wanted["busy"] = f"{name}/cpu (%)"
    series = {
        key: found for key, of in wanted.items() if (found := recording.series(of)) is not None
    }
    mine = host_share(recording, device) if device["kind"] == "host" else None
    if mine and mine.cpu is not None and "busy" in series:
        series |= {"machine": series["busy"], "busy": mine.cpu}
    if mine and mine.memory is not None and "memory" in series:
        series |= {"machine memory": series["memory"], "memory": mine.memory}
    if "throttled" in series:
        series["throttled"] = throttled(series["throttled"])
    counter = series.pop("energy", np.full(len(recording.times), NAN))
    read = ~np.isnan(counter)
    own = [key for key in recording.keys if key.startswith(f"{name}/")]
    measured = recording.frame[own].notna().any(axis=1).to_numpy()
    return _Known(device, series, measured, recording.times[read], counter[read], mine)


def _groups(recording: Recording, by: str) -> list[tuple[str, list[Mark], bool]]:
    groups: dict[Any, tuple[str, list[Mark], bool]] = {}
    repeats: dict[str, list[Mark]] = {}
    for number, mark in enumerate(recording.marks):
        key: Any = number if by == "mark" else mark.name
        if by == "repeat":
            latest = repeats.get(mark.name, [])
            if not _goes_with(mark, latest):
                latest = repeats[mark.name] = []
            latest.append(mark)
            key = id(latest[0])
        groups.setdefault(key, (mark.name, [], False))[1].append(mark)
    whole = Mark(WHOLE, 0.0, recording.end, 0, {})
    items = _counted_once(recording.marks)
    if items is not None:
        whole.attributes["items"] = items
    return [(WHOLE, [whole], True), *groups.values()]


def _goes_with(mark: Mark, latest: list[Mark]) -> bool:
    """Whether a mark is another process's of the repeat that these are of."""
    among = any(mark.process == other.process for other in latest)
    return not among and any(mark.start < other.end for other in latest)


def _counted_once(marks: list[Mark]) -> float | None:
    """Images of the whole run: where phases nest, only the outermost count is taken."""
    total: float | None = None
    counted: dict[int | str, tuple[str, float]] = {}
    for mark in marks:  # in order of their start, the outer before the inner
        if "items" not in mark.attributes:
            continue
        outer, end = counted.get(mark.process, ("", 0.0))
        if outer and mark.name.startswith(outer + "/") and mark.start <= end:
            continue
        if mark.open:
            return None
        counted[mark.process] = (mark.name, mark.end)
        total = (total or 0.0) + mark.attributes["items"]
    return total


def _rows(
    recording: Recording,
    known: Sequence[_Known],
    name: str,
    marks: list[Mark],
    whole: bool,
    idle_threshold: float,
    each: bool,
) -> list[dict[str, Any]]:
    spans = stats.union([(mark.start, mark.end) for mark in marks])
    seconds = sum(end - start for start, end in spans)
    weights = stats.weights(recording.times, recording.end, spans)
    counted = [m.attributes["items"] for m in marks if "items" in m.attributes]
    # It is not known how many of its items a phase handled that never ended.
    known_count = counted and not any(m.open for m in marks if "items" in m.attributes)
    items = float(sum(counted)) if known_count else NAN
    common: dict[str, Any] = {
        "phase": name,
        "count": 1 if whole else len(marks),
        "seconds": seconds,
        "items": items,
        "items/s": items / seconds if seconds > 0 else NAN,
    }
    if each and not whole:
        common["start (s)"] = marks[0].start
        common |= {k: v for k, v in marks[0].attributes.items() if k not in COLUMNS}
    rows = []
    longest = gap_threshold(recording.step)
    gpus: list[Row] = []
    place = 0
    for device in known:
        rows.append(common | _figures(device, spans, weights, idle_threshold, longest))
        if device.device["kind"] == "gpu":
            gpus.append(rows[-1])
            place = len(rows)
    if gpus:
        together = _together(gpus, longest)
        joules, covered = (together.get(key, NAN) for key in ("energy (J)", "energy covers (s)"))
        # What is not covered by the joules is left out of the items too.
        together["items/J"] = common["items/s"] * covered / joules if joules > 0 else NAN
        rows.insert(place, common | together)
    return rows


def _figures(
    known: _Known,
    spans: Sequence[stats.Span],
    weights: stats.Weights,
    idle_threshold: float,
    longest: float,
) -> Row:
    series = {key: stats.known(values, weights) for key, values in known.series.items()}
    row: Row = {"device": known.device["name"]}
    row["measured (s)"] = float(weights.seconds[known.measured[weights.places]].sum())
    if "busy" in series:
        busy = series["busy"]
        row["utilisation mean (%)"] = busy.mean()
        row["utilisation p5 (%)"] = busy.quantile(0.05)
        row["utilisation p95 (%)"] = busy.quantile(0.95)
        row["idle share (%)"] = busy.share_below(idle_threshold)
    if "activity" in series:
        row["SM activity mean (%)"] = series["activity"].mean()
    if "memory" in series:
        row["memory peak (MiB)"] = series["memory"].peak()
    if "power" in series:
        row["power mean (W)"] = series["power"].mean()
    if "others" in known.series and (known.series["others"] > 0).any():
        nothing = stats.known(np.empty(0), stats.weights([], 0.0, []))
        row["others' memory peak (MiB)"] = series.get("others' memory", nothing).peak()
        row["others' SM use mean (%)"] = series.get("others' use", nothing).mean()
    if "machine" in series and known.mine:
        row["allowed cores"] = known.mine.cores
        row["machine CPU mean (%)"] = series["machine"].mean()
    if "machine memory" in series and known.mine:
        row["allowed memory (MiB)"] = known.mine.memory_limit
        row["machine memory peak (MiB)"] = series["machine memory"].peak()
    if "throttled" in series:
        row["throttled share (%)"] = 100 * series["throttled"].mean()
    if len(known.counter):
        joules = stats.growth(known.counted, known.counter, spans, longest)
    elif "power" in series:
        joules = series["power"].integral(), series["power"].total
    else:
        return row
    row["energy (J)"], row["energy covers (s)"] = joules
    return row


def _together(gpus: list[dict[str, Any]], longest: float) -> dict[str, Any]:
    """All GPUs as one: means of shares, sums of watts, joules and memory, and the imbalance.

    A share is a mean over the time that was measured on any of them, each weighing as much as was
    measured of it; ``measured (s)`` is the mean of theirs, and so falls short where one was lost.
    A sum needs every device, for the same time: where one lacks more than ``longest`` seconds that
    another has, as one does that was lost, the sum would look like a saving, so it is left out.
    """

    def known(key: str) -> list[float]:
        return [row[key] for row in gpus if not math.isnan(row.get(key, NAN))]

    def alike(key: str) -> bool:
        return len(known(key)) == len(gpus) and max(known(key)) - min(known(key)) <= longest

    row: dict[str, Any] = {"device": "gpus"}
    row["measured (s)"] = sum(known("measured (s)")) / len(gpus)
    for key in (
        "utilisation mean (%)",
        "idle share (%)",
        "SM activity mean (%)",
        "throttled share (%)",
    ):
        own = [one for one in gpus if not math.isnan(one.get(key, NAN))]
        if own:
            seconds = sum(one["measured (s)"] for one in own)
            row[key] = sum(one[key] * one["measured (s)"] for one in own) / seconds
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
