"""This module computes what the diagnosis needs of a phase: idle pauses, clocks, memory.

The rules of :mod:`gpumon.diagnosis` are made of these.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from gpumon import stats
from gpumon.recording import NAN, Recording
from gpumon.words import THROTTLING, Row, qualified_gpu_name, reasons

IDLE_BELOW = 5.0
"""Percent of utilisation."""
USED = 5.0
"""Percent of utilisation: a GPU below did not take part, and is not judged."""
MEASURED = 0.9
"""The least share of a phase that is measured where a sentence rests on it: by GPU and figure."""
COARSE = 1.0
"""Seconds between samples: with more, pauses are not distinguished."""
AT_WORK = 50.0
"""Percent of utilisation: above, a clock that nothing holds down is a usual one."""
SERIES = {
    "utilisation mean (%)": "utilisation (%)",
    "others' SM use mean (%)": "SM use others (%)",
    "SM activity mean (%)": "SM activity (%)",
    "power mean (W)": "power (W)",
    "throttled share (%)": "throttle reasons (bits)",
}
"""The series behind each column of a GPU's row that the diagnosis reads."""
NEEDED = ("utilisation mean (%)", "others' SM use mean (%)")
"""Without these, where a GPU has them, nothing of a phase is sure."""


@dataclass
class HostShare:
    """A program's part of a host.

    cpu: percent of the ``cores`` that it might use, and as the whole host's for as long as nothing
    limited it; None if nothing ever did. memory: MiB of the ``memory_limit`` that it might use,
    likewise.
    """

    cpu: stats.Floats | None
    cores: float
    memory: stats.Floats | None
    memory_limit: float


def host_share(recording: Recording, host: dict[str, Any]) -> HostShare:
    """The part of a host that the watched program might use.

    Where several programs of one host were recorded, each has its own part, and none is treated
    as the host's.
    """
    cpu, cores = _pair(recording, host, "CPU allowance", "%", "cores")
    memory, most = _pair(recording, host, "memory allowance", "MiB", "MiB")
    whole = recording.series(f"{host['name']}/cpu (%)")
    if cpu is not None and whole is not None:
        cpu = np.where(np.isnan(cpu), whole, cpu)
    return HostShare(cpu, cores, memory, most)


def _pair(
    recording: Recording, host: dict[str, Any], quantity: str, used: str, amount: str
) -> tuple[stats.Floats | None, float]:
    """What was used of what there was to use, and the least of that; only for one program."""
    machine = re.escape(host["name"].removesuffix("host"))
    endings = f"{quantity} used ({used})", f"{quantity} ({amount})"
    patterns = [rf"{machine}(rank\w+:)?process/{re.escape(ending)}" for ending in endings]
    keys = [[k for k in recording.keys if re.fullmatch(p, k)] for p in patterns]
    if any(len(found) != 1 for found in keys):
        return None, math.nan
    series, limits = (recording.series(found[0]) for found in keys)
    if series is None or limits is None:
        return None, math.nan
    return series, float(np.nanmin(limits))


@dataclass
class Phase:
    """One phase.

    spans: its repeats, joined where they touch, seconds in all. starts: of the repeats, in order.
    gpus: the rows of the GPUs that took part; hosts: of the machines. A row lacks the numbers that
    rest on less than ``MEASURED`` of the phase.
    """

    recording: Recording
    spans: Sequence[stats.Span]
    starts: Sequence[float]
    weights: stats.Weights
    seconds: float
    gpus: list[Row]
    hosts: list[Row]
    all_took_part: bool

    def of(self, device: str, quantity: str) -> stats.Known:
        """The known values of a series during the phase."""
        values = self.recording.series(f"{device}/{quantity}")
        if values is None:
            values = np.full(len(self.recording.times), NAN)
        return stats.known(values, self.weights)

    def is_known(self, known: stats.Known) -> bool:
        """Whether enough of the phase is known to judge all of it."""
        return known.total >= MEASURED * self.seconds

    def mean(self, known: stats.Known) -> float:
        """Over the phase; NaN if too little of it is known."""
        return known.mean() if self.is_known(known) else NAN

    def name(self, row: Row) -> str:
        return qualified_gpu_name(row["device"])

    @property
    def together(self) -> str:
        """The GPUs that took part, in words."""
        if len(self.gpus) == 1:
            return self.name(self.gpus[0])
        return f"the {len(self.gpus)} GPUs" + ("" if self.all_took_part else " in use")


def phase_of(
    recording: Recording,
    spans: Sequence[stats.Span],
    starts: Sequence[float],
    rows: Sequence[Row],
    seconds: float,
) -> Phase:
    """What is known of a phase; rows: those that the summary has of it."""
    weights = stats.weights(recording.times, recording.end, spans)
    phase = Phase(recording, spans, starts, weights, seconds, [], [], False)
    kinds = {device["name"]: device["kind"] for device in recording.devices}
    gpus = [row for row in rows if kinds.get(row["device"]) == "gpu"]
    sure = [_sure(phase, row) for row in gpus]
    if all(_is_enough(row, own, seconds) for row, own in zip(gpus, sure, strict=True)):
        phase.gpus = [row for row in sure if row.get("utilisation mean (%)", NAN) >= USED]
    phase.hosts = [_sure_host(phase, row) for row in rows if kinds.get(row["device"]) == "host"]
    phase.all_took_part = len(phase.gpus) == len(gpus)
    return phase


def _sure(phase: Phase, row: Row) -> Row:
    """A GPU's row without the figures that rest on too little."""
    unsure = {
        column
        for column, quantity in SERIES.items()
        if column in row and not phase.is_known(phase.of(row["device"], quantity))
    }
    return {column: value for column, value in row.items() if column not in unsure}


def _is_enough(row: Row, sure: Row, seconds: float) -> bool:
    """Whether a GPU was measured; what was never known of it, it may lack."""
    needed = (column for column in NEEDED if not math.isnan(row.get(column, NAN)))
    return row["measured (s)"] >= MEASURED * seconds and all(column in sure for column in needed)


def _sure_host(phase: Phase, row: Row) -> Row:
    device = next(one for one in phase.recording.devices if one["name"] == row["device"])
    mine = host_share(phase.recording, device).cpu
    known = (
        stats.known(mine, phase.weights) if mine is not None else phase.of(row["device"], "cpu (%)")
    )
    return row if phase.is_known(known) else {**row, "utilisation mean (%)": NAN}


def idle_pauses(phase: Phase, device: str) -> tuple[float, int]:
    """The percentage of a phase without work, and the number of pauses.

    Not counted is the pause with which a repeat begins, while its loader fills.
    """
    values = phase.recording.series(f"{device}/utilisation (%)")
    if values is None or phase.recording.step > COARSE:
        return 0.0, 0
    edges = np.append(phase.recording.times, phase.recording.end)
    idle = counted = 0.0
    count = 0
    for start, end in phase.spans:
        begun = resting = False
        following = bisect_right(phase.starts, start)
        for place, seconds in zip(*stats.inside(edges, [(start, end)]), strict=True):
            while following < len(phase.starts) and phase.starts[following] < edges[place + 1]:
                begun, following = False, following + 1  # another repeat, without time between
            if not math.isnan(values[place]):  # a hole neither ends a pause nor begins one
                rests = values[place] < IDLE_BELOW
                begun = begun or not rests
                if begun:
                    counted += seconds
                    idle += seconds * rests
                    count += rests and not resting
                resting = rests
    return (100 * idle / counted if counted else 0.0), count


def throttled(bits: stats.Floats) -> stats.Floats:
    """Whether masks hold a reason that slows down work: 1, or 0; NaN if that is not known."""
    masks = np.nan_to_num(bits).astype(int) & THROTTLING
    return np.where(np.isnan(bits), NAN, masks > 0)


def throttle_intervals(recording: Recording, device: str) -> list[tuple[float, float, str]]:
    """The stretches in which power or heat held a GPU's clocks down: from, to, and why."""
    bits = recording.series(f"{device}/throttle reasons (bits)")
    if bits is None:
        return []
    masks = np.nan_to_num(bits).astype(int) & THROTTLING
    edges = np.append(recording.times, recording.end).tolist()
    changes = [*np.flatnonzero(np.diff(masks, prepend=-1)), len(masks)]
    return [
        (edges[start], edges[end], ", ".join(reasons(masks[start])))
        for start, end in pairwise(changes)
        if masks[start]
    ]


def throttle_cause(phase: Phase, device: str) -> str:
    """What held the clocks down for most of the time."""
    seconds: dict[str, float] = {}
    for value, held in zip(*phase.of(device, "throttle reasons (bits)"), strict=True):
        for why in reasons(int(value) & THROTTLING):
            seconds[why] = seconds.get(why, 0.0) + held
    return max(seconds, key=lambda name: seconds[name], default="")


def throttled_share(phase: Phase, device: str) -> float:
    """Percent of a phase in which the clocks were throttled while there was work.

    An idle GPU's clock is low by itself, whatever reason the driver gives.
    """
    bits = phase.recording.series(f"{device}/throttle reasons (bits)")
    busy = phase.recording.series(f"{device}/utilisation (%)")
    if bits is None or busy is None:
        return NAN
    held = (busy >= IDLE_BELOW) & (throttled(bits) == 1)
    places, seconds = phase.weights
    return 100 * float(seconds[held[places]].sum()) / phase.seconds


def throttled_clocks(phase: Phase, device: str) -> tuple[float, float]:
    """The mean SM clock in MHz at work, while it was throttled and while it was not."""
    keys = ("SM clock (MHz)", "throttle reasons (bits)", "utilisation (%)")
    clock, bits, busy = (phase.recording.series(f"{device}/{key}") for key in keys)
    if clock is None or bits is None or busy is None:
        return NAN, NAN
    held = throttled(bits)
    held[~(busy >= AT_WORK)] = NAN
    lower, usual = (
        stats.known(np.where(held == state, clock, NAN), phase.weights).mean() for state in (1, 0)
    )
    return lower, usual
