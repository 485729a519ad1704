"""This module computes the summary table, which has one row for each phase and device."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from gpumon import stats
from gpumon.errors import MonitorError
from gpumon.recording import NAN, Recording, Span
from gpumon.trace_files import gap_threshold
from gpumon.words import THROTTLING, Row

WHOLE = "(all)"
IDLE_BELOW = 5.0
"""Percent of utilisation."""
COLUMNS = [
    *("phase", "device", "count", "seconds", "measured (s)"),
    *("utilisation mean (%)", "utilisation p5 (%)", "utilisation p95 (%)", "idle share (%)"),
    *("SM activity mean (%)", "memory peak (MiB)", "power mean (W)"),
    *("energy (J)", "energy covers (s)", "throttled share (%)", "items", "items/s", "items/J"),
    *("utilisation imbalance (%)", "memory imbalance (%)"),
]
"""The table's order; a row's other columns come behind these."""
Metric = Callable[[stats.Known], float]
SERIES = {
    "busy": "utilisation (%)",
    "activity": "SM activity (%)",
    "memory": "memory used (MiB)",
    "power": "power (W)",
    "throttled": "throttle reasons (bits)",
    "others' memory": "memory others (MiB)",
    "others' use": "SM use others (%)",
    "others": "other processes (count)",
}
METRICS: dict[str, tuple[str, Metric]] = {
    "utilisation mean (%)": ("busy", stats.Known.mean),
    "utilisation p5 (%)": ("busy", lambda busy: busy.quantile(0.05)),
    "utilisation p95 (%)": ("busy", lambda busy: busy.quantile(0.95)),
    "idle share (%)": ("busy", lambda busy: busy.share_below(IDLE_BELOW)),
    "SM activity mean (%)": ("activity", stats.Known.mean),
    "power mean (W)": ("power", stats.Known.mean),
    "memory peak (MiB)": ("memory", stats.Known.peak),
    "others' memory peak (MiB)": ("others' memory", stats.Known.peak),
    "others' SM use mean (%)": ("others' use", stats.Known.mean),
    "allowed cores": ("allowed cores", stats.Known.peak),
    "machine CPU mean (%)": ("machine", stats.Known.mean),
    "allowed memory (MiB)": ("allowed memory", stats.Known.peak),
    "machine memory peak (MiB)": ("machine memory", stats.Known.peak),
    "throttled share (%)": ("throttled", lambda throttled: 100 * throttled.mean()),
}
"""The series of each column, and what of it."""
SHARES = ("utilisation mean (%)", "idle share (%)", "SM activity mean (%)", "throttled share (%)")
SUMS = {
    "memory peak (MiB)": "measured (s)",
    "power mean (W)": "measured (s)",
    "energy (J)": "energy covers (s)",
}
"""What adds up over GPUs, and the seconds that it covers."""


def summarize(recording: Recording, by: str) -> pd.DataFrame:
    """See :meth:`gpumon.Trace.summary`."""
    rows = rows_of(recording, by)
    extra = [key for row in rows for key in row if key not in COLUMNS]
    return pd.DataFrame(rows, columns=[*COLUMNS, *dict.fromkeys(extra)])


def table_text(table: pd.DataFrame) -> str:
    """The table for a terminal of 80 columns, without the columns in which nothing is known."""
    shown = table.set_index(["phase", "device"]).dropna(axis=1, how="all")
    return shown.to_string(line_width=80, na_rep="", float_format=_number)


def _number(value: float) -> str:
    return (
        f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if value >= 1 else f"{value:.3g}"
    )


def rows_of(recording: Recording, by: str = "phase") -> list[Row]:
    """The rows of the table, each without the columns that were not measured."""
    if by not in ("phase", "repeat"):
        raise MonitorError(f"summary(by={by!r}): choose 'phase', or 'repeat' for each repeat")
    known = [_known(recording, device) for device in recording.devices]
    whole = Span(WHOLE, 0.0, recording.end, 0, {})
    items = _counted_once(recording.spans)
    if items is not None:
        whole.attributes["items"] = items
    groups = [[whole], *_groups(recording.spans, by)]
    return [row for spans in groups for row in _rows(recording, known, spans)]


class _Known(NamedTuple):
    """What is the same of a device in all phases; counted, counter: readings of its joules."""

    device: dict[str, Any]
    series: dict[str, stats.Floats]
    measured: npt.NDArray[np.bool_]
    counted: stats.Floats
    counter: stats.Floats


def _known(recording: Recording, device: dict[str, Any]) -> _Known:
    name = device["name"]
    wanted = {key: f"{name}/{of}" for key, of in SERIES.items()}
    if device["kind"] == "host":
        wanted["busy"] = f"{name}/cpu (%)"
    series = {
        key: found for key, of in wanted.items() if (found := recording.series(of)) is not None
    }
    nothing = np.full(len(recording.times), NAN)
    if device["kind"] == "host":
        mine = host_share(recording, device)
        if mine.cpu is not None and "busy" in series:
            series |= {"machine": series["busy"], "busy": mine.cpu}
            series["allowed cores"] = np.full_like(nothing, mine.cores)
        if mine.memory is not None and "memory" in series:
            series |= {"machine memory": series["memory"], "memory": mine.memory}
            series["allowed memory"] = np.full_like(nothing, mine.memory_limit)
    if "throttled" in series:
        series["throttled"] = throttled(series["throttled"])
    if "others" in series and (series["others"] > 0).any():
        series = {"others' memory": nothing, "others' use": nothing} | series
    else:
        series = {key: values for key, values in series.items() if "others" not in key}
    counter = recording.series(f"{name}/energy (J)")
    counter = nothing if counter is None else counter
    read = ~np.isnan(counter)
    own = [key for key in recording.keys if key.startswith(f"{name}/")]
    measured = recording.frame[own].notna().any(axis=1).to_numpy()
    return _Known(device, series, measured, recording.times[read], counter[read])


class HostShare(NamedTuple):
    """Percent of the ``cores`` and MiB of the ``memory_limit`` that a program may use of a host.

    cpu is the whole host's for as long as nothing limited it; None where nothing ever did.
    """

    cpu: stats.Floats | None
    cores: float
    memory: stats.Floats | None
    memory_limit: float


def host_share(recording: Recording, host: dict[str, Any]) -> HostShare:
    """A program's part of a host; none where several programs of one host were recorded."""
    machine = re.escape(host["name"].removesuffix("host"))

    def pair(used: str, limit: str) -> tuple[stats.Floats | None, float]:
        patterns = [rf"{machine}(rank\w+:)?process/{re.escape(name)}" for name in (used, limit)]
        keys = [[k for k in recording.keys if re.fullmatch(p, k)] for p in patterns]
        series = [recording.series(found[0]) if len(found) == 1 else None for found in keys]
        if series[0] is None or series[1] is None:
            return None, math.nan
        return series[0], float(np.nanmin(series[1]))

    cpu, cores = pair("CPU allowance used (%)", "CPU allowance (cores)")
    memory, most = pair("memory allowance used (MiB)", "memory allowance (MiB)")
    whole = recording.series(f"{host['name']}/cpu (%)")
    if cpu is not None and whole is not None:
        cpu = np.where(np.isnan(cpu), whole, cpu)
    return HostShare(cpu, cores, memory, most)


def throttled(bits: stats.Floats) -> stats.Floats:
    """Whether masks hold a reason that slows down work: 1, or 0; NaN where that is not known."""
    masks = np.nan_to_num(bits).astype(int) & THROTTLING
    return np.where(np.isnan(bits), NAN, masks > 0)


def _groups(spans: Sequence[Span], by: str) -> list[list[Span]]:
    """The spans of each phase, or of each repeat: those of several processes that overlap."""
    groups: list[list[Span]] = []
    latest: dict[str, list[Span]] = {}
    for span in spans:
        group = latest.get(span.name)
        if group is not None and by == "repeat":
            again = any(span.process == other.process for other in group)
            if again or not any(span.start < other.end for other in group):
                group = None
        if group is None:
            group = latest[span.name] = []
            groups.append(group)
        group.append(span)
    return groups


def _counted_once(spans: list[Span]) -> float | None:
    """Images of the whole run: where phases nest, only the outermost count is taken."""
    total: float | None = None
    counted: dict[int | str, tuple[str, float]] = {}
    for span in spans:  # in order of their start, the outer before the inner
        if "items" not in span.attributes:
            continue
        outer, end = counted.get(span.process, ("", 0.0))
        if outer and span.name.startswith(outer + "/") and span.start <= end:
            continue
        if span.open:
            return None
        counted[span.process] = (span.name, span.end)
        total = (total or 0.0) + span.attributes["items"]
    return total


def _rows(recording: Recording, known: Sequence[_Known], spans: list[Span]) -> list[Row]:
    """A row for each device in a phase, and one for all GPUs together behind the last of them."""
    stretches = stats.union([(span.start, span.end) for span in spans])
    seconds = sum(end - start for start, end in stretches)
    weights = stats.weights(recording.times, recording.end, stretches)
    counted = [span for span in spans if "items" in span.attributes]
    items = sum(float(span.attributes["items"]) for span in counted)
    # It is not known how many of its items a phase handled that never ended.
    items = NAN if not counted or any(span.open for span in counted) else items
    common: Row = {
        "phase": spans[0].name,
        "count": len(spans),
        "seconds": seconds,
        "items": items,
        "items/s": items / seconds if seconds > 0 else NAN,
    }
    longest = gap_threshold(recording.step)
    rows = [common | _measured(device, stretches, weights, longest) for device in known]
    gpus = [row for row, of in zip(rows, known, strict=True) if of.device["kind"] == "gpu"]
    if gpus:
        together = _together(gpus, longest)
        joules, covered = (together.get(key, NAN) for key in ("energy (J)", "energy covers (s)"))
        # What is not covered by the joules is left out of the items too.
        together["items/J"] = common["items/s"] * covered / joules if joules > 0 else NAN
        rows.insert(len(gpus), common | together)
    return rows


def _measured(
    known: _Known, stretches: Sequence[stats.Stretch], weights: stats.Weights, longest: float
) -> Row:
    series = {key: stats.known(values, weights) for key, values in known.series.items()}
    row: Row = {"device": known.device["name"]}
    row["measured (s)"] = float(weights.seconds[known.measured[weights.places]].sum())
    row |= {column: of(series[key]) for column, (key, of) in METRICS.items() if key in series}
    if len(known.counter):
        joules = stats.growth(known.counted, known.counter, stretches, longest)
        row["energy (J)"], row["energy covers (s)"] = joules
    elif "power" in series:
        row["energy (J)"] = series["power"].integral()
        row["energy covers (s)"] = series["power"].total
    return row


def _together(gpus: list[Row], longest: float) -> Row:
    """All GPUs as one: means of shares, sums of watts, joules and memory, and the imbalance.

    A share is a mean over the time that was measured on any of them. A sum needs every device, for
    the same time but ``longest`` seconds: where one was lost, it would look like a saving.
    """
    table = pd.DataFrame(gpus)
    seconds = table["measured (s)"]
    row: Row = {"device": "gpus", "measured (s)": seconds.mean()}
    for key in SHARES:
        if key in table and table[key].notna().any():
            row[key] = (table[key] * seconds).sum() / seconds[table[key].notna()].sum()
    for key, covers in SUMS.items():
        known = key in table and table[[key, covers]].notna().all(axis=None)
        if known and table[covers].max() - table[covers].min() <= longest:
            row[key] = table[key].sum()
    if "energy (J)" in row:
        row["energy covers (s)"] = table["energy covers (s)"].min()
    for key, column in (("utilisation", "utilisation mean (%)"), ("memory", "memory peak (MiB)")):
        values = table[column].tolist() if column in table else []
        row[f"{key} imbalance (%)"] = stats.imbalance(values)
    return row
