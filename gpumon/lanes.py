"""What a chart draws, worked out before drawing: one lane a device, its lines and its figures.

Both charts (matplotlib's and the interactive one) draw these, so that they say the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpumon import stats
from gpumon.recording import Floats, Recording
from gpumon.style import mebibytes


@dataclass
class Line:
    """One series as percent of its full scale. kind: busy, activity, host, memory or power.

    ``values * scale`` is in ``unit``.
    """

    kind: str
    label: str
    values: Floats
    note: str
    scale: float = 1.0
    unit: str = "%"


@dataclass
class Lane:
    """One device.

    reason: why it has no utilisation. host: it is a machine's CPU and memory, not a GPU. lost: the
    second in which the device was lost to the driver.
    """

    name: str
    title: str
    subtitle: str
    lines: list[Line] = field(default_factory=list)
    reason: str = ""
    host: bool = False
    lost: float | None = None

    def line(self, kind: str) -> Line | None:
        return next((line for line in self.lines if line.kind == kind), None)


def lanes_of(recording: Recording, window: tuple[float, float]) -> list[Lane]:
    """The lanes of a trace, GPUs first, the figures at their side over the window."""
    weights = stats.weights(recording.times, recording.end, [window])
    return [
        (_host if device["kind"] == "host" else _gpu)(recording, device, weights)
        for device in recording.devices
    ]


def _gpu(recording: Recording, device: dict[str, Any], weights: Floats) -> Lane:
    name = device["name"]
    title = name.rpartition(":")[2].replace("gpu", "GPU ", 1).replace("-mig", " MIG ")
    lane = Lane(name, title, device.get("machine") or device["product"].removeprefix("NVIDIA "))
    busy = recording.series(f"{name}/utilisation (%)")
    if busy is not None:
        note = f"{stats.mean(busy, weights):.0f} % busy"
        lane.lines.append(Line("busy", "GPU utilisation", busy, note))
    activity = recording.series(f"{name}/SM activity (%)")
    if activity is not None:
        note = f"{stats.mean(activity, weights):.0f} % SM active"
        lane.lines.append(Line("activity", "SM activity", activity, note))
    memory = recording.series(f"{name}/memory used (MiB)")
    if memory is not None:
        peak = stats.peak(memory, weights)
        total = device["memory total (MiB)"] or peak or 1.0
        note = f"{mebibytes(peak)} peak"
        lane.lines.append(_memory_line(memory, total, note))
    power = recording.series(f"{name}/power (W)")
    if power is not None:
        limit = device["power limit (W)"] or float(np.nanmax(power)) or 1.0
        note = f"{stats.mean(power, weights):.0f} W"
        lane.lines.append(
            Line("power", "power, % of the limit", 100 * power / limit, note, limit / 100, "W")
        )
    for event in recording.events:
        if event["event"] == "device lost" and event["device"] == name:
            lane.lost = event["t"]
    missing = recording.header["series"]
    if busy is None:
        reasons = [s["reason"] for s in missing if s["key"] == f"{name}/utilisation (%)"]
        lane.reason = f"utilisation: {reasons[0]}" if reasons and reasons[0] else lane.subtitle
    return lane


def _memory_line(memory: Floats, total: float, note: str) -> Line:
    label = "memory, % of the device's"
    return Line("memory", label, 100 * memory / total, note, total / 100 / 1024, "GiB")


def _host(recording: Recording, device: dict[str, Any], weights: Floats) -> Lane:
    name = device["name"]
    lane = Lane(name, "Host", device.get("machine") or f"{device['cores']} cores", host=True)
    busy = recording.series(f"{name}/cpu (%)")
    if busy is not None:
        note = f"{stats.mean(busy, weights):.0f} % CPU"
        lane.lines.append(Line("host", "CPU, all cores", busy, note))
    memory = recording.series(f"{name}/memory used (MiB)")
    if memory is not None:
        total = device["memory total (MiB)"]
        note = f"{mebibytes(stats.peak(memory, weights))} peak"
        lane.lines.append(_memory_line(memory, total, note))
    return lane


def condense(
    times: Floats, values: Floats, end: float, most: int
) -> tuple[Floats, Floats, Floats, Floats]:
    """At most ``most`` steps (time, mean, lowest, highest) of a series that has more samples."""
    if len(times) <= most:
        return times, values, values, values
    edges = np.linspace(times[0], end, most + 1)[:-1]
    places = np.unique(np.searchsorted(times, edges))
    places = places[places < len(times)]
    held = np.diff(np.append(times, end))
    known = ~np.isnan(values)
    seconds = np.where(known, held, 0.0)
    total = np.add.reduceat(seconds, places)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.add.reduceat(np.where(known, values, 0.0) * seconds, places) / total
    low = np.minimum.reduceat(np.where(known, values, np.inf), places)
    high = np.maximum.reduceat(np.where(known, values, -np.inf), places)
    empty = total == 0
    return (
        times[places],
        np.where(empty, np.nan, mean),
        np.where(empty, np.nan, low),
        np.where(empty, np.nan, high),
    )
