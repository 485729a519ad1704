"""This module prepares the lanes of a chart: the lines and figures of each device.

Lanes of requested series have separate scales, from 0 to a round number, which ``top`` names.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpumon import stats
from gpumon.drawing.lanes import Lane, Line, figure_text
from gpumon.errors import MonitorError
from gpumon.phase_metrics import host_share, throttle_intervals
from gpumon.recording import Recording
from gpumon.stats import Floats
from gpumon.trace_notes import at_time
from gpumon.words import (
    cores_text,
    gpu_name,
    memory_text,
)

KINDS = ("first", "second", "third", "fourth")
MOST_MARKS = 8
GROUPS = {"clocks": ("sm clock", "memory clock")}
"""Names for several quantities; any other name is the beginning of a quantity's own."""
ADDING_UP = ("count)", "J)")
"""Units of what is counted since the start, of which a mean says nothing."""


def lanes_of(
    recording: Recording, window: tuple[float, float], series: str | Sequence[str] = ()
) -> list[Lane]:
    """The lanes of a trace, host by host, GPUs first, the figures at their side over the window.

    series: what else is to be drawn, in separate lanes; see :func:`gpumon.Trace.plot`.
    """
    if not recording.devices:
        raise MonitorError(
            f"the trace {recording.prefix} has phases and no device: it belongs to a rank whose "
            "host another rank recorded; draw both traces together"
        )
    machines = {device["name"]: device.get("machine") for device in recording.devices}
    lanes = _lanes(recording, window, [series] if isinstance(series, str) else series)
    # A process's own lanes are no device's, and stay where they are: a trace of it is of one host.
    order = list(dict.fromkeys(machines.get(lane.name) for lane in lanes))
    return sorted(lanes, key=lambda lane: order.index(machines.get(lane.name)))


def _lanes(recording: Recording, window: tuple[float, float], series: Sequence[str]) -> list[Lane]:
    weights = stats.weights(recording.times, recording.end, [window])
    lanes = []
    for device in recording.devices:
        if device["kind"] == "host":
            lanes.append(_host(recording, device, weights))
        else:
            lane = _gpu(recording, device, weights)
            lane.marks = throttle_marks(recording, device["name"])
            lanes.append(lane)
    return lanes + series_lanes(recording, series, weights)


def _gpu(recording: Recording, device: dict[str, Any], weights: stats.Weights) -> Lane:
    name = device["name"]
    lane = Lane(name, gpu_name(name), _subtitle(device))
    busy = recording.series(f"{name}/utilisation (%)")
    lane.lines += _mean_line("busy", "GPU utilisation", busy, "% busy", weights)
    activity = recording.series(f"{name}/SM activity (%)")
    lane.lines += _mean_line("activity", "SM activity", activity, "% SM active", weights)
    lane.lines += memory_line(recording, device, "memory used (MiB)", weights)
    power = recording.series(f"{name}/power (W)")
    for line in _mean_line("power", "power, % of the limit", power, "W", weights):
        limit = device.get("power limit (W)") or float(np.nanmax(line.values)) or 1.0
        line.values, line.scale, line.unit = 100 * line.values / limit, limit / 100, "W"
        lane.lines.append(line)
    for event in recording.events:
        if event["event"] == "device lost" and event["device"] == name:
            lane.lost = (event["t"], f"lost {at_time(event['t'], recording)}")
    if busy is None:
        keys = [s for s in recording.header["series"] if s["key"] == f"{name}/utilisation (%)"]
        reasons = [s["reason"] for s in keys if s.get("reason")]
        lane.reason = f"utilisation: {reasons[0]}" if reasons else lane.subtitle
    return lane


def _mean_line(
    kind: str, label: str, values: Floats | None, unit: str, weights: stats.Weights
) -> list[Line]:
    """A line with its mean over the window at its side; none where there are no values."""
    if values is None:
        return []
    note = figure_text(stats.known(values, weights).mean(), unit)
    return [Line(kind, label, values, note)]


def _subtitle(device: dict[str, Any]) -> str:
    """The machine or the product, and CUDA's number where it is another than the driver's."""
    text = str(device.get("machine") or device["product"].removeprefix("NVIDIA "))
    cuda = device.get("cuda")
    own = device["name"].rpartition(":")[2]
    return text if cuda is None or own == f"gpu{cuda}" else f"cuda:{cuda}, {text}"


def memory_line(
    recording: Recording, device: dict[str, Any], quantity: str, weights: stats.Weights
) -> list[Line]:
    """A series of MiB of a device's memory; none where it was not recorded."""
    memory = recording.series(f"{device['name']}/{quantity}")
    if memory is None:
        return []
    total = device.get("memory total (MiB)") or float(np.nanmax(memory)) or 1.0
    return [_memory(memory, total, weights)]


def _memory(memory: Floats, total: float, weights: stats.Weights) -> Line:
    label = "memory, % of the device's"
    peak = stats.known(memory, weights).peak()
    note = f"{memory_text(peak)} peak" if not math.isnan(peak) else "no figure, memory"
    return Line("memory", label, 100 * memory / total, note, total / 100 / 1024, "GiB")


def _host(recording: Recording, device: dict[str, Any], weights: stats.Weights) -> Lane:
    """CPU and memory; where the program may use less than the host has, of that, and the host's."""
    name = device["name"]
    lane = Lane(name, "Host", device.get("machine") or cores_text(device), host=True)
    mine = host_share(recording, device)
    cpu = recording.series(f"{name}/cpu (%)")
    if mine.cpu is not None and cpu is not None:
        lane.subtitle = f"{mine.cores:g} of {lane.subtitle}"
        lane.lines += _mean_line("host", "CPU, allowed cores", mine.cpu, "% of its CPU", weights)
        lane.lines += _mean_line("machine", "CPU, all cores", cpu, "% of all", weights)
    else:
        lane.lines += _mean_line("host", "CPU, all cores", cpu, "% CPU", weights)
    for whole in memory_line(recording, device, "memory used (MiB)", weights):
        if mine.memory is not None:
            lane.lines.append(_memory(mine.memory, mine.memory_limit, weights))
            whole.kind, whole.label = "machine_memory", "memory, the machine's"
            whole.note += " of all"
        lane.lines.append(whole)
    return lane


def throttle_marks(recording: Recording, device: str) -> list[tuple[float, str]]:
    """Where the clocks of a GPU begin to be throttled, and why."""
    throttled: dict[str, float] = {}
    for start, _, why in throttle_intervals(recording, device):
        throttled.setdefault(why, start)
    return sorted((start, why) for why, start in throttled.items())[:MOST_MARKS]


def series_lanes(recording: Recording, names: Sequence[str], weights: stats.Weights) -> list[Lane]:
    """A lane for each device and unit of the series that names stand for, four lines in each."""
    lanes = []
    for name in names:
        keys = _keys(recording, name)
        groups: dict[tuple[str, str], list[str]] = {}
        for key in keys:
            owner, _, quantity = key.partition("/")
            unit = quantity.rpartition(" (")[2].rstrip(")")
            groups.setdefault((owner, unit), []).append(key)
        for (owner, unit), members in groups.items():
            for first in range(0, len(members), len(KINDS)):
                part = members[first : first + len(KINDS)]
                full = _round_up(_most(recording, part))
                title = gpu_name(owner)
                title = title if title != owner.rpartition(":")[2] else title.capitalize()
                whose, _, own = owner.rpartition(":")  # of a merged trace: host, rank or both
                subtitle = f"{name}, {whose.replace(':', ' ')}" if whose else name
                lane = Lane(owner, title, subtitle, host=not own.startswith("gpu"))
                lane.top = f"{full:g} {_shown(unit)}".rstrip()
                for kind, key in zip(KINDS, part, strict=False):
                    lane.lines.append(_line(recording, key, kind, full, weights))
                lanes.append(lane)
    return lanes


def _keys(recording: Recording, name: str) -> list[str]:
    """The series that a name means and that have values, in the trace's order."""
    there = [key for key in recording.keys if recording.series(key) is not None]

    def begin(wanted: tuple[str, ...]) -> list[str]:
        return [key for key in there if key.partition("/")[2].lower().startswith(wanted)]

    keys = [key for key in there if key == name]
    keys = keys or begin(GROUPS.get(name.lower(), (name.lower(),)))
    if not keys:
        groups = [group for group, wanted in GROUPS.items() if begin(wanted)]
        quantities = [key.partition("/")[2].rpartition(" (")[0] for key in there]
        known = dict.fromkeys([*groups, *(q for q in quantities if not q[-1:].isdigit())])
        raise MonitorError(
            f"series={name!r}: the trace has no such values; it has {', '.join(known)}"
        )
    return keys


def _line(recording: Recording, key: str, kind: str, full: float, weights: stats.Weights) -> Line:
    quantity, _, unit = key.partition("/")[2].rpartition(" (")
    shown = _shown(unit.rstrip(")"))
    values = recording.frame[key].to_numpy()
    known = stats.known(values, weights)
    if not len(known.values):
        note = f"{quantity} unknown"
    elif unit == "bits)":
        note = f"{quantity}, bits"
    elif unit in ADDING_UP:
        note = f"{quantity} up to {_digits(known.peak())} {shown}".rstrip()
    else:
        note = f"{quantity} {_digits(known.mean())} {shown}".rstrip()
    return Line(kind, "", 100 * values / full, note, full / 100, shown, quantity)


def _most(recording: Recording, keys: Sequence[str]) -> float:
    return float(recording.frame[list(keys)].max().max())


def _round_up(value: float) -> float:
    """The least of 1, 2, 5, 10, 20, ... that is not below a value."""
    if value <= 0:
        return 1.0
    tens = 10.0 ** math.floor(math.log10(value))
    return next((tens * step for step in (1, 2, 5) if tens * step >= value), 10 * tens)


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _shown(unit: str) -> str:
    return {"C": "°C", "count": "", "bits": ""}.get(unit, unit)
