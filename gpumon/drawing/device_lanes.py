"""This module prepares the lanes of a trace: the lines and figures of each device.

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
from gpumon.words import cores_text, gpu_name, memory_text

KINDS = ("first", "second", "third", "fourth")
MOST_MARKS = 8
GROUPS = {"clocks": ("sm clock", "memory clock")}
"""Names for several quantities; any other name is the beginning of a quantity's own."""
UNITS = {"C": "°C", "count": "", "bits": ""}


def lanes_of(
    recording: Recording, window: tuple[float, float], series: Sequence[str] = ()
) -> list[Lane]:
    """The lanes of a trace, host by host, GPUs first, the figures at their side over the window.

    series: what else is to be drawn, in separate lanes; see :func:`gpumon.Trace.plot`.
    """
    if not recording.devices:
        raise MonitorError(
            f"the trace {recording.prefix} has phases and no device: it belongs to a rank whose "
            "host another rank recorded; draw both traces together"
        )
    weights = stats.weights(recording.times, recording.end, [window])
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
    busy = recording.series(f"{name}/utilisation (%)")
    lane.lines += _mean_line("busy", "GPU utilisation", busy, "% busy", weights)
    activity = recording.series(f"{name}/SM activity (%)")
    lane.lines += _mean_line("activity", "SM activity", activity, "% SM active", weights)
    lane.lines += _whole_memory(recording, device, weights)
    power = recording.series(f"{name}/power (W)")
    for line in _mean_line("power", "power, % of the limit", power, "W", weights):
        limit = device.get("power limit (W)") or float(np.nanmax(line.values)) or 1.0
        line.values, line.scale, line.unit = 100 * line.values / limit, limit / 100, "W"
        lane.lines.append(line)
    throttled: dict[str, float] = {}
    for start, _, why in throttle_intervals(recording, name):
        throttled.setdefault(why, start)
    marks = sorted((start, why, "machine") for why, start in throttled.items())
    lane.marks = marks[:MOST_MARKS] + [
        (event["t"], f"lost {at_time(event['t'], recording)}", "activity")
        for event in recording.events
        if event["event"] == "device lost" and event["device"] == name
    ]
    if busy is None:
        keys = [s for s in recording.header["series"] if s["key"] == f"{name}/utilisation (%)"]
        reasons = [s["reason"] for s in keys if s.get("reason")]
        lane.reason = f"utilisation: {reasons[0]}" if reasons else lane.subtitle
    return lane


def _mean_line(
    kind: str, label: str, values: Floats | None, unit: str, weights: stats.Weights
) -> list[Line]:
    """A line with its mean over the window at its side; none if there are no values."""
    if values is None:
        return []
    note = figure_text(stats.known(values, weights).mean(), unit)
    return [Line(kind, label, values, note, short=label.partition(",")[0])]


def _whole_memory(
    recording: Recording, device: dict[str, Any], weights: stats.Weights
) -> list[Line]:
    memory = recording.series(f"{device['name']}/memory used (MiB)")
    if memory is None:
        return []
    total = device.get("memory total (MiB)") or float(np.nanmax(memory)) or 1.0
    return [_memory(memory, total, weights)]


def _memory(memory: Floats, total: float, weights: stats.Weights) -> Line:
    peak = stats.known(memory, weights).peak()
    note = f"{memory_text(peak)} peak" if not math.isnan(peak) else "no figure, memory"
    label = "memory, % of the device's"
    return Line("memory", label, 100 * memory / total, note, total / 102400, "GiB", "memory")


def _host(recording: Recording, device: dict[str, Any], weights: stats.Weights) -> Lane:
    """CPU and memory; where the program may use less than the host has, of that, and the host's."""
    name = device["name"]
    subtitle = device.get("machine") or cores_text(device)
    lane = Lane(name, "Host", subtitle, recording.times, recording.end, host=True)
    mine = host_share(recording, device)
    cpu = recording.series(f"{name}/cpu (%)")
    if mine.cpu is not None and cpu is not None:
        lane.subtitle = f"{mine.cores:g} of {lane.subtitle}"
        lane.lines += _mean_line("host", "CPU, allowed cores", mine.cpu, "% of its CPU", weights)
        lane.lines += _mean_line("machine", "CPU, all cores", cpu, "% of all", weights)
    else:
        lane.lines += _mean_line("host", "CPU, all cores", cpu, "% CPU", weights)
    for whole in _whole_memory(recording, device, weights):
        if mine.memory is not None:
            lane.lines.append(_memory(mine.memory, mine.memory_limit, weights))
            whole.kind, whole.label = "machine_memory", "memory, the machine's"
            whole.note += " of all"
        lane.lines.append(whole)
    return lane


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
    there = [key for key in recording.keys if recording.series(key) is not None]

    def begin(wanted: tuple[str, ...]) -> list[str]:
        return [key for key in there if key.partition("/")[2].lower().startswith(wanted)]

    keys = begin(GROUPS.get(name.lower(), (name.lower(),)))
    if not keys:
        groups = [group for group, wanted in GROUPS.items() if begin(wanted)]
        quantities = [key.partition("/")[2].rpartition(" (")[0] for key in there]
        known = dict.fromkeys([*groups, *(q for q in quantities if not q[-1:].isdigit())])
        raise MonitorError(
            f"series={name!r}: the trace has no such values; it has {', '.join(known)}"
        )
    return keys


def _note(quantity: str, unit: str, shown: str, known: stats.Known) -> str:
    if not len(known.values):
        return f"{quantity} unknown"
    if unit == "bits":
        return f"{quantity}, bits"
    # Of what is counted since the start, a mean says nothing.
    up_to = unit in ("count", "J")
    value = known.peak() if up_to else known.mean()
    figure = f"{value:.0f}" if value >= 100 else f"{value:.3g}"
    return f"{quantity}{' up to' if up_to else ''} {figure} {shown}".rstrip()


def _round_up(value: float) -> float:
    """The least of 1, 2, 5, 10, 20, ... that is not below a value."""
    if value <= 0:
        return 1.0
    tens = 10.0 ** math.floor(math.log10(value))
    return next((tens * step for step in (1, 2, 5) if tens * step >= value), 10 * tens)
