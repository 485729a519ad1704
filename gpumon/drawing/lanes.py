"""This module prepares the lanes of a chart: the lines and figures of each device.

Both charts (matplotlib's and the interactive one) draw these, so that they say the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumon import stats
from gpumon.errors import MonitorError
from gpumon.event_messages import gpu_name
from gpumon.host_share import host_share
from gpumon.recording import Recording
from gpumon.trace_notes import at_time
from gpumon.units import cores_text, memory_text

Floats = npt.NDArray[np.float64]


@dataclass
class Line:
    """One series as percent of its full scale. kind: how it looks, one of ``style.KINDS``.

    ``values * scale`` is in ``unit``. short: its name in the tooltip; empty: the name of its kind
    ranged: the minimum and maximum of each value, where values are means over some time.
    """

    kind: str
    label: str
    values: Floats
    note: str
    scale: float = 1.0
    unit: str = "%"
    short: str = ""
    ranged: tuple[Floats, Floats] | None = None


@dataclass
class Lane:
    """One device.

    reason: why it has no utilisation. host: it is a machine's CPU and memory, not a GPU. lost: the
    second in which the device was lost to the driver, and how the chart says it. marks: other
    moments, likewise. top: what its highest value is called.
    """

    name: str
    title: str
    subtitle: str
    lines: list[Line] = field(default_factory=list)
    reason: str = ""
    host: bool = False
    lost: tuple[float, str] | None = None
    marks: list[tuple[float, str]] = field(default_factory=list)
    top: str = "100 %"

    def line(self, kind: str) -> Line | None:
        return next((line for line in self.lines if line.kind == kind), None)


def lanes_of(
    recording: Recording, window: tuple[float, float], series: Sequence[str] = ()
) -> list[Lane]:
    """The lanes of a trace, host by host, GPUs first, the figures at their side over the window.

    series: what else is to be drawn, in separate lanes; see :func:`gpumon.Trace.plot`.
    """
    if not recording.devices:
        raise MonitorError(
            f"the trace {recording.prefix} has phases and no device: it is of a rank whose host "
            "another rank recorded; draw them together"
        )
    machines = {device["name"]: device.get("machine") for device in recording.devices}
    lanes = _lanes(recording, window, series)
    # A process's own lanes are no device's, and stay where they are: a trace of it is of one host.
    order = list(dict.fromkeys(machines.get(lane.name) for lane in lanes))
    return sorted(lanes, key=lambda lane: order.index(machines.get(lane.name)))


def _lanes(recording: Recording, window: tuple[float, float], series: Sequence[str]) -> list[Lane]:
    from gpumon.drawing import optional_lanes

    weights = stats.weights(recording.times, recording.end, [window])
    lanes = []
    for device in recording.devices:
        if device["kind"] == "host":
            lanes.append(_host(recording, device, weights))
        else:
            lane = _gpu(recording, device, weights)
            if device["kind"] == "parent":
                optional_lanes.complete_parent(lane, recording, device, weights)
            lane.marks = optional_lanes.event_marks(recording, device["name"])
            lanes += [lane, *optional_lanes.sharing_lanes(recording, device, weights)]
    return lanes + optional_lanes.series_lanes(recording, series, weights)


def _gpu(recording: Recording, device: dict[str, Any], weights: stats.Weights) -> Lane:
    name = device["name"]
    lane = Lane(name, gpu_name(name), _subtitle(device))
    busy = recording.series(f"{name}/utilisation (%)")
    if busy is not None:
        note = figure_text(stats.mean(stats.known(busy, weights)), "% busy")
        lane.lines.append(Line("busy", "GPU utilisation", np.asarray(busy), note))
        lane.lines[-1].ranged = _ranged(recording, f"{name}/utilisation (%)")
    activity = recording.series(f"{name}/SM activity (%)")
    if activity is not None:
        note = figure_text(stats.mean(stats.known(activity, weights)), "% SM active")
        lane.lines.append(Line("activity", "SM activity", np.asarray(activity), note))
    if memory := memory_line(recording, device, "memory used (MiB)", weights):
        lane.lines.append(memory)
    power = recording.series(f"{name}/power (W)")
    if power is not None:
        limit = device.get("power limit (W)") or float(np.nanmax(power)) or 1.0
        note = figure_text(stats.mean(stats.known(power, weights)), "W")
        lane.lines.append(
            Line(
                "power",
                "power, % of the limit",
                100 * np.asarray(power) / limit,
                note,
                limit / 100,
                "W",
            )
        )
    for event in recording.events:
        if event["event"] == "device lost" and event["device"] == name:
            lane.lost = (event["t"], f"lost {at_time(event['t'], recording)}")
    if busy is None:
        keys = [s for s in recording.header["series"] if s["key"] == f"{name}/utilisation (%)"]
        reasons = [s["reason"] for s in keys if s.get("reason")]
        lane.reason = f"utilisation: {reasons[0]}" if reasons else lane.subtitle
    return lane


def _ranged(recording: Recording, key: str) -> tuple[Floats, Floats] | None:
    found = recording.range(key)
    return None if found is None else (np.asarray(found[0], float), np.asarray(found[1], float))


def _subtitle(device: dict[str, Any]) -> str:
    """The machine or the product, and CUDA's number where it is another than the driver's."""
    text = str(device.get("machine") or device["product"].removeprefix("NVIDIA "))
    cuda = device.get("cuda")
    own = device["name"].rpartition(":")[2]
    return text if cuda is None or own == f"gpu{cuda}" else f"cuda:{cuda}, {text}"


def figure_text(value: float, unit: str) -> str:
    """A mean over what is shown, for the side of a lane; nothing where nothing is known of it."""
    return f"{value:.0f} {unit}" if not math.isnan(value) else f"no figure, {unit}"


def devices_text(recording: Recording) -> str:
    """What a run's lane stands for, under its name."""
    count = len(recording.gpus)
    lost = sum(event["event"] == "device lost" for event in recording.events)
    if not count:
        return "no GPU"
    return f"{count} GPU{'s' * (count > 1)}" + (f", {lost} lost" if lost else "")


def memory_line(
    recording: Recording, device: dict[str, Any], quantity: str, weights: stats.Weights
) -> Line | None:
    """A series of MiB of a device's memory; None where it was not recorded."""
    key = f"{device['name']}/{quantity}"
    memory, highest = recording.series(key), recording.highest(key)
    if memory is None or highest is None:
        return None
    total = device.get("memory total (MiB)") or float(np.nanmax(memory)) or 1.0
    return _memory(memory, total, highest, weights)


def _memory(
    memory: Sequence[float], total: float, highest: Sequence[float], weights: stats.Weights
) -> Line:
    label = "memory, % of the device's"
    peak = stats.peak(stats.known(highest, weights))
    note = f"{memory_text(peak)} peak" if not math.isnan(peak) else "no figure, memory"
    return Line("memory", label, 100 * np.asarray(memory) / total, note, total / 100 / 1024, "GiB")


def _host(recording: Recording, device: dict[str, Any], weights: stats.Weights) -> Lane:
    """CPU and memory; where the program may use less than the host has, of that, and the host's."""
    name = device["name"]
    lane = Lane(name, "Host", device.get("machine") or cores_text(device), host=True)
    mine = host_share(recording, device)
    cpu = recording.series(f"{name}/cpu (%)")
    if mine.cpu is not None and cpu is not None:
        lane.subtitle = f"{mine.cores:g} of {lane.subtitle}"
        note = figure_text(stats.mean(stats.known(mine.cpu, weights)), "% of its CPU")
        lane.lines.append(Line("host", "CPU, allowed cores", np.asarray(mine.cpu), note))
        note = figure_text(stats.mean(stats.known(cpu, weights)), "% of all")
        lane.lines.append(Line("machine", "CPU, all cores", np.asarray(cpu), note))
    elif cpu is not None:
        note = figure_text(stats.mean(stats.known(cpu, weights)), "% CPU")
        lane.lines.append(Line("host", "CPU, all cores", np.asarray(cpu), note))
        lane.lines[-1].ranged = _ranged(recording, f"{name}/cpu (%)")
    if whole := memory_line(recording, device, "memory used (MiB)", weights):
        if mine.memory is not None and mine.memory_peaks is not None:
            lane.lines.append(_memory(mine.memory, mine.memory_limit, mine.memory_peaks, weights))
            whole.kind, whole.label = "machine_memory", "memory, the machine's"
            whole.note += " of all"
        lane.lines.append(whole)
    return lane


def condense(
    times: npt.ArrayLike,
    values: Floats,
    end: float,
    most: int,
    ranged: tuple[Floats, Floats] | None = None,
) -> tuple[Floats, Floats, Floats, Floats]:
    """About ``most`` steps (time, mean, lowest, highest) of a series that has more samples.

    ranged: the minimum and maximum of each value, where values are means themselves.

    What lasts longer than a step by itself, as a gap may, is one by itself, so that nothing is
    drawn into it.
    """
    times = np.asarray(times, dtype=float)
    least, greatest = ranged or (values, values)
    if len(times) <= most:
        return times, values, least, greatest
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
    low = np.minimum.reduceat(np.where(np.isnan(least), np.inf, least), places)
    high = np.maximum.reduceat(np.where(np.isnan(greatest), -np.inf, greatest), places)
    empty = total == 0
    return (
        times[places],
        np.where(empty, np.nan, mean),
        np.where(empty, np.nan, low),
        np.where(empty, np.nan, high),
    )


def outline(times: Floats, values: Floats, end: float) -> tuple[Floats, Floats]:
    """The corners of a step line: each value from its time to the next, broken where unknown."""
    return np.repeat(np.append(times, end), 2)[1:-1], np.repeat(values, 2)
