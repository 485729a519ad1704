"""This module prepares the lanes and phases that both charts draw, so that they show the same."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gpumon import stats
from gpumon.errors import MonitorError
from gpumon.recording import Recording, Span
from gpumon.stats import Floats
from gpumon.summary import host_share
from gpumon.trace_notes import at_time
from gpumon.words import THROTTLING, duration_text, gpu_name, memory_text, reasons

MOST_LEVELS = 3
MOST_MARKS = 8
LINES = {
    "busy": ("utilisation (%)", "GPU utilisation, mean and range", "% busy", "utilisation"),
    "activity": ("SM activity (%)", "SM activity, mean", "% SM active", "SM activity"),
    "host": ("cpu (%)", "CPU, all cores", "% CPU", "CPU"),
}
"""By kind of line: the series, its name in the legend, at the side, and at the pointer."""
KINDS = ("first", "second", "third", "fourth")
GROUPS = {"clocks": ("sm clock", "memory clock")}
"""Names for several quantities; any other name is the beginning of a quantity's own."""
UNITS = {"C": "°C", "count": "", "bits": ""}


@dataclass
class Line:
    """One series as percent of its full scale; ``values * scale`` is in ``unit``.

    short: its name at the pointer. low, high: the range over the devices whose mean is drawn.
    """

    kind: str
    label: str
    values: Floats
    note: str
    scale: float = 1.0
    unit: str = "%"
    short: str = ""
    low: Floats | None = None
    high: Floats | None = None


@dataclass
class Lane:
    """One device, or one run of a comparison.

    reason: why it has no utilisation. marks: moments, what is said there, and in which colour of
    the theme. top: what its highest value is called. phases: of this lane alone. note: one more
    line.
    """

    name: str
    title: str
    subtitle: str
    times: Floats
    end: float
    lines: list[Line] = field(default_factory=list)
    reason: str = ""
    host: bool = False
    marks: list[tuple[float, str, str]] = field(default_factory=list)
    top: str = "100 %"
    phases: list[Span] | None = None
    note: str = ""


def mean_text(value: float, unit: str) -> str:
    """A mean for the side of a lane, or ``no data``."""
    return f"{value:.0f} {unit}" if not math.isnan(value) else f"no data, {unit}"


def condense(
    times: Floats, values: Floats, end: float, most: int
) -> tuple[Floats, Floats, Floats, Floats]:
    """About ``most`` steps (time, mean, lowest, highest) of a series that has more samples.

    A sample that lasts longer than a step, such as a gap, is a step of its own.
    """
    if len(times) <= most:
        return times, values, values, values
    edges, width = np.linspace(times[0], end, most + 1, retstep=True)
    held = np.diff(np.append(times, end))
    alone = np.flatnonzero(held > width * 1.000001)
    places = np.unique(np.concatenate([np.searchsorted(times, edges[:-1]), alone, alone + 1]))
    places = places[places < len(times)]
    known = ~np.isnan(values)
    seconds = np.where(known, held, 0.0)
    total = np.add.reduceat(seconds, places)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.add.reduceat(np.where(known, values, 0.0) * seconds, places) / total
    low, high = (extreme.reduceat(values, places) for extreme in (np.fmin, np.fmax))
    return times[places], mean, low, high


def steps(lane: Lane, line: Line, most: int) -> tuple[Floats, Floats, Floats, Floats]:
    """:func:`condense` of a line; the range is that of its devices, where it stands for several."""
    times, mean, low, high = condense(lane.times, line.values, lane.end, most)
    if line.low is not None and line.high is not None:
        low, high = (condense(lane.times, v, lane.end, most)[1] for v in (line.low, line.high))
    return times, mean, low, high


def labels(span: Span) -> list[str]:
    """A phase's names, long to short: ``train, epoch 2``, ``train 2``, ``train``."""
    short = span.name.rsplit("/", 1)[-1]
    if "epoch" not in span.attributes:
        return [short]
    epoch = span.attributes["epoch"]
    return [f"{short}, epoch {epoch}", f"{short} {epoch}", short]


def merged_spans(spans: Sequence[Span], levels: int = MOST_LEVELS) -> list[Span]:
    """The outer spans; those of several processes that have one name and overlap become one."""
    outer = [span for span in spans if span.depth < levels]
    joined: list[Span] = []
    for name in dict.fromkeys(span.name for span in outer):
        group = [span for span in outer if span.name == name]
        if len({span.process for span in group}) == 1:
            joined += group
            continue
        for start, end in stats.union([(span.start, span.end) for span in group]):
            first = next(span for span in group if start <= span.start <= end)
            joined.append(replace(first, start=start, end=end))
    return sorted(joined, key=lambda span: (span.depth, span.start))


def lanes_of(recording: Recording, series: Sequence[str] = ()) -> list[Lane]:
    """The lanes of a trace, host by host, GPUs first, with numbers at their side.

    series: what else is to be drawn, in separate lanes; see :func:`gpumon.Trace.plot`.
    """
    if not recording.devices:
        raise MonitorError(
            f"the trace {recording.prefix} has phases and no device: it belongs to a rank whose "
            "host another rank recorded; draw both traces together"
        )
    weights = stats.weights(recording.times, recording.end, [(0.0, recording.end)])
    lanes = [
        (_host if device["kind"] == "host" else _gpu)(recording, device, weights)
        for device in recording.devices
    ]
    for name in series:
        lanes += _series_lanes(recording, name, weights)
    machines = {device["name"]: device.get("machine") for device in recording.devices}
    order = list(dict.fromkeys(machines.get(lane.name) for lane in lanes))
    return sorted(lanes, key=lambda lane: order.index(machines.get(lane.name)))


def _gpu(recording: Recording, device: dict[str, Any], weights: stats.Weights) -> Lane:
    name = device["name"]
    subtitle = str(device.get("machine") or device["product"].removeprefix("NVIDIA "))
    if device.get("cuda") is not None and name.rpartition(":")[2] != f"gpu{device['cuda']}":
        subtitle = f"cuda:{device['cuda']}, {subtitle}"
    lane = Lane(name, gpu_name(name), subtitle, recording.times, recording.end)
    busy, activity, memory, power = (
        recording.series(f"{name}/{quantity}")
        for quantity in ("utilisation (%)", "SM activity (%)", "memory used (MiB)", "power (W)")
    )
    lane.lines += _mean_line("busy", "GPU utilisation", busy, "% busy", weights)
    lane.lines += _mean_line("activity", "SM activity", activity, "% SM active", weights)
    lane.lines += _memory(memory, device.get("memory total (MiB)"), weights)
    for line in _mean_line("power", "power, % of the limit", power, "W", weights):
        limit = device.get("power limit (W)") or float(np.nanmax(line.values)) or 1.0
        line.values, line.scale, line.unit = 100 * line.values / limit, limit / 100, "W"
        lane.lines.append(line)
    bits = recording.series(f"{name}/throttle reasons (bits)")
    if bits is not None:  # the first time that each reason slowed it down
        masks = np.nan_to_num(bits).astype(int) & THROTTLING
        kinds, places = np.unique(masks, return_index=True)
        starts = zip(recording.times[places].tolist(), kinds, strict=True)
        lane.marks = [
            (start, ", ".join(reasons(kind)), "machine") for start, kind in sorted(starts) if kind
        ][:MOST_MARKS]
    lane.marks += [
        (event["t"], f"lost {at_time(event['t'], recording)}", "activity")
        for event in recording.events
        if event["event"] == "device lost" and event["device"] == name
    ]
    if busy is None:
        keys = [s for s in recording.header["series"] if s["key"] == f"{name}/utilisation (%)"]
        said = [s["reason"] for s in keys if s.get("reason")]
        lane.reason = f"utilisation: {said[0]}" if said else lane.subtitle
    return lane


def _host(recording: Recording, device: dict[str, Any], weights: stats.Weights) -> Lane:
    """CPU and memory; where the program may use less than the host has, of that, and the host's."""
    name = device["name"]
    subtitle = device.get("machine") or f"{device['cores']} core{'s' * (device['cores'] != 1)}"
    lane = Lane(name, "Host", subtitle, recording.times, recording.end, host=True)
    mine = host_share(recording, device)
    cpu = recording.series(f"{name}/cpu (%)")
    if mine.cpu is not None and cpu is not None:
        lane.subtitle = f"{mine.cores:g} of {lane.subtitle}"
        lane.lines += _mean_line("host", "CPU, allowed cores", mine.cpu, "% of its CPU", weights)
        lane.lines += _mean_line("machine", "CPU, all cores", cpu, "% of all", weights)
    else:
        lane.lines += _mean_line("host", "CPU, all cores", cpu, "% CPU", weights)
    memory = recording.series(f"{name}/memory used (MiB)")
    whole = _memory(memory, device.get("memory total (MiB)"), weights)
    if whole and mine.memory is not None:
        lane.lines += _memory(mine.memory, mine.memory_limit, weights)
        whole[0].kind, whole[0].label = "machine_memory", "memory, the machine's"
        whole[0].note += " of all"
    lane.lines += whole
    return lane


def _mean_line(
    kind: str, label: str, values: Floats | None, unit: str, weights: stats.Weights
) -> list[Line]:
    """A line with its mean at its side; none where there are no values."""
    if values is None:
        return []
    note = mean_text(stats.known(values, weights).mean(), unit)
    return [Line(kind, label, values, note, short=label.partition(",")[0])]


def _memory(memory: Floats | None, total: float | None, weights: stats.Weights) -> list[Line]:
    if memory is None:
        return []
    total = total or float(np.nanmax(memory)) or 1.0
    peak = stats.known(memory, weights).peak()
    note = f"{memory_text(peak)} peak" if not math.isnan(peak) else "no data, memory"
    label = "memory, % of the device's"
    return [Line("memory", label, 100 * memory / total, note, total / 102400, "GiB", "memory")]


def _series_lanes(recording: Recording, name: str, weights: stats.Weights) -> list[Lane]:
    """A lane for each device and unit of the series that a name stands for, four lines in each."""
    groups: dict[tuple[str, str], list[str]] = {}
    for key in _keys(recording, name):
        owner, _, quantity = key.partition("/")
        groups.setdefault((owner, quantity.rpartition(" (")[2].rstrip(")")), []).append(key)
    lanes = []
    for (owner, unit), members in groups.items():
        shown = UNITS.get(unit, unit)
        whose, _, own = owner.rpartition(":")  # of a merged trace: host, rank or both
        subtitle = f"{name}, {whose.replace(':', ' ')}" if whose else name
        title = gpu_name(owner) if own.startswith("gpu") else own.capitalize()
        for first in range(0, len(members), len(KINDS)):
            part = members[first : first + len(KINDS)]
            full = _round_up(float(recording.frame[part].max().max()))
            lane = Lane(owner, title, subtitle, recording.times, recording.end)
            lane.host = not own.startswith("gpu")
            lane.top = f"{full:g} {shown}".rstrip()
            for kind, key in zip(KINDS, part, strict=False):
                quantity = key.partition("/")[2].rpartition(" (")[0]
                values = recording.frame[key].to_numpy()
                note = _note(quantity, unit, shown, stats.known(values, weights))
                line = Line(kind, "", 100 * values / full, note, full / 100, shown, quantity)
                lane.lines.append(line)
            lanes.append(lane)
    return lanes


def _keys(recording: Recording, name: str) -> list[str]:
    """The series that a name means and that have values, in the trace's order."""
    wanted = GROUPS.get(name.lower(), (name.lower(),))
    there = {
        key: key.partition("/")[2] for key in recording.keys if recording.series(key) is not None
    }
    keys = [key for key, quantity in there.items() if quantity.lower().startswith(wanted)]
    if not keys:
        quantities = [quantity.rpartition(" (")[0] for quantity in there.values()]
        known = dict.fromkeys(q for q in quantities if not q[-1:].isdigit())
        raise MonitorError(
            f"series={name!r}: the trace has no such values; it has {', '.join(known)}"
        )
    return keys


def _note(quantity: str, unit: str, shown: str, known: stats.Known) -> str:
    if not len(known.values):
        return f"{quantity} unknown"
    if unit == "bits":
        return f"{quantity}, bits"
    # A mean says nothing about what is counted since the start.
    up_to = unit in ("count", "J")
    value = known.peak() if up_to else known.mean()
    number = f"{value:.0f}" if value >= 100 else f"{value:.3g}"
    return f"{quantity}{' up to' if up_to else ''} {number} {shown}".rstrip()


def _round_up(value: float) -> float:
    """The least of 1, 2, 5, 10, 20, ... that is not below a value."""
    if value <= 0:
        return 1.0
    tens = 10.0 ** math.floor(math.log10(value))
    return next((tens * step for step in (1, 2, 5) if tens * step >= value), 10 * tens)


def comparison_lanes(
    recordings: Mapping[str, Recording], align: str | None, until: Sequence[str]
) -> tuple[list[Lane], tuple[float, float]]:
    """A lane for each run, by its name, and the stretch of time to show.

    Raises MonitorError if no run has the phase ``align``.
    """
    if not recordings:
        raise MonitorError("no trace to draw: give at least one, as {'name': trace or path}")
    lanes = [_run(name, each, align, until) for name, each in recordings.items()]
    spans = [span for each in recordings.values() for span in each.spans]
    if align is not None and not any(span.name == align for span in spans):
        known = dict.fromkeys(span.name for span in spans if span.depth == 0)
        raise MonitorError(
            f"align={align!r}: the traces have {', '.join(known) or 'no phase at all'}"
        )
    right = max(lane.end for lane in lanes)
    left = min(float(lane.times[0]) if len(lane.times) else 0.0 for lane in lanes)
    return lanes, (max(left, -0.05 * right) if align else 0.0, max(right, 1e-3))


def _run(name: str, recording: Recording, align: str | None, until: Sequence[str]) -> Lane:
    spans = merged_spans(recording.spans, levels=1)
    starts = [span.start for span in recording.spans if span.name == align]
    origin = min(starts, default=0.0)
    end = max((span.end for span in spans if span.name in until), default=recording.end)
    gpus = recording.gpus
    lost = sum(event["event"] == "device lost" for event in recording.events)
    subtitle = f"{len(gpus)} GPU{'s' * (len(gpus) > 1)}" if gpus else "no GPU"
    subtitle += f", {lost} lost" if lost else ""
    subtitle += "" if align is None or starts else f", no {align}"
    count = int(np.searchsorted(recording.times, end))
    lane = Lane(
        name,
        name,
        subtitle,
        recording.times[:count] - origin,
        end - origin,
        host=not gpus,
        phases=[
            replace(span, start=span.start - origin, end=span.end - origin)
            for span in spans
            if span.start < end
        ],
        note=duration_text(end - origin),
    )
    weights = stats.weights(recording.times[:count], end, [(origin, end)])
    for kind, (quantity, label, unit, short) in LINES.items():
        keys = [f"{device['name']}/{quantity}" for device in recording.devices]
        members = [v[:count] for key in keys if (v := recording.series(key)) is not None]
        if not members or (kind == "host" and lane.lines):
            continue
        stack = np.vstack(members)
        with warnings.catch_warnings():  # where none is known, nothing is
            warnings.simplefilter("ignore", RuntimeWarning)
            mean, low, high = (f(stack, axis=0) for f in (np.nanmean, np.nanmin, np.nanmax))
        note = mean_text(stats.known(mean, weights).mean(), unit)
        lane.lines.append(Line(kind, label, mean, note, short=short, low=low, high=high))
    return lane
