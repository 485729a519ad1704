"""This module finds what limited each phase, and states it in a sentence with its numbers.

The first match in ``RULES`` gives the phase's sentence. Each rule is strict, because no sentence is
better than a wrong one. ``docs/gpumon.md`` has them as a table.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Optional

import numpy as np

from gpumon import stats
from gpumon.recording import NAN, Recording
from gpumon.summary import IDLE_BELOW, WHOLE, host_share, rows_of, throttled
from gpumon.words import THROTTLING, Row, qualified_gpu_name, reasons

USED = 5.0
"""Percent of utilisation: a GPU below did not take part, and is not judged."""
MEASURED = 0.9
"""The least share of a phase that must be measured for a sentence, by GPU and metric."""
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
LEAST_SECONDS = 5.0
LEAST_STRETCH = 2.0
"""Seconds of a phase's stretches, on average: the driver's utilisation is a mean of up to one."""
FEW = 10
"""Samples of a stretch, on average: the value that it begins with may be of what was before."""
OTHERS = 5.0
"""Percent of the SMs' time that others took."""
IDLE_SHARE, PAUSES = 15.0, 5
FLAT = 60.0
"""Percent of utilisation: no more of it beside a full CPU is the CPU's doing."""
FULL_CPU, FREE_CPU = 90.0, 80.0
THROTTLED_SHARE, LOWER_CLOCK = 20.0, 0.95
IMBALANCE, HIGHEST = 25.0, 50.0
ACTIVITY = "SM activity mean (%)"
BUSY = 90.0
FILLED = 50.0
"""Percent of SM activity. NVIDIA's manual of DCGM: less likely indicates ineffective use."""
FILLED_POWER = 70.0
"""Percent of the power limit, if SM activity is not known: low occupancy draws less power."""


@dataclass(frozen=True)
class Diagnosis:
    """The limit of a phase.

    Attributes:
        phase: the phase's name; ``(all)`` in a trace without phases.
        kind: the rule that matched: shared, input_bound, throttled, imbalanced, low_occupancy
            or ok.
        sentence: the limit in plain words, without the phase's name.
        metrics: the values behind the sentence, by name with unit.
    """

    phase: str
    kind: str
    sentence: str
    metrics: dict[str, float]


Found = Optional["tuple[str, dict[str, float]]"]


def diagnose(recording: Recording) -> list[Diagnosis]:
    """Diagnose the phases whose limit is certain, in order of their start.

    A trace without phases counts as one phase, ``(all)``.
    """
    by_phase: dict[str, list[Row]] = {}
    for row in rows_of(recording):
        by_phase.setdefault(row["phase"], []).append(row)
    if len(by_phase) > 1:
        del by_phase[WHOLE]
    repeats: dict[str, list[stats.Stretch]] = {WHOLE: [(0.0, recording.end)]}
    for span in recording.spans:
        repeats.setdefault(span.name, []).append((span.start, span.end))
    found = []
    for name, own in by_phase.items():
        if phase := phase_of(recording, repeats[name], own):
            said = ((rule.__name__[1:], rule(phase)) for rule in RULES)
            found += [Diagnosis(name, kind, *one) for kind, one in said if one][:1]
    return found


@dataclass
class Phase:
    """One phase.

    stretches: its repeats, joined where they touch. starts: of the repeats, in order. gpus, hosts:
    the rows of those that took part, without the metrics measured in less than ``MEASURED`` of the
    phase.
    """

    recording: Recording
    stretches: Sequence[stats.Stretch]
    starts: Sequence[float]
    weights: stats.Weights
    seconds: float
    gpus: list[Row] = field(default_factory=list)
    hosts: list[Row] = field(default_factory=list)
    all_took_part: bool = False

    def values(self, device: str, quantity: str) -> stats.Floats:
        """A series; NaN where there is none."""
        found = self.recording.series(f"{device}/{quantity}")
        return np.full(len(self.recording.times), NAN) if found is None else found

    def is_known(self, values: stats.Floats) -> bool:
        """Whether enough of the phase is known to judge all of it."""
        return stats.known(values, self.weights).total >= MEASURED * self.seconds

    def name(self, row: Row) -> str:
        return qualified_gpu_name(row["device"])

    @property
    def together(self) -> str:
        if len(self.gpus) == 1:
            return self.name(self.gpus[0])
        return f"the {len(self.gpus)} GPUs" + ("" if self.all_took_part else " in use")


def phase_of(
    recording: Recording, marked: Sequence[stats.Stretch], rows: Sequence[Row]
) -> Phase | None:
    """What is known of a phase; None if it is too short. rows: its rows in the summary."""
    stretches = stats.union(marked)
    seconds = sum(end - start for start, end in stretches)
    stretch = max(LEAST_STRETCH, FEW * recording.step)
    if seconds < LEAST_SECONDS or seconds / len(stretches) < stretch:
        return None
    weights = stats.weights(recording.times, recording.end, stretches)
    phase = Phase(recording, stretches, sorted(start for start, _ in marked), weights, seconds)
    devices = {device["name"]: device for device in recording.devices}
    gpus = [row for row in rows if devices.get(row["device"], {}).get("kind") == "gpu"]
    sure = []
    for row in gpus:
        known = {
            column: value
            for column, value in row.items()
            if column not in SERIES or phase.is_known(phase.values(row["device"], SERIES[column]))
        }
        needed = [column for column in NEEDED if not math.isnan(row.get(column, NAN))]
        if row["measured (s)"] >= MEASURED * seconds and all(each in known for each in needed):
            sure.append(known)
    if len(sure) == len(gpus):
        phase.gpus = [row for row in sure if row.get("utilisation mean (%)", NAN) >= USED]
    phase.all_took_part = len(phase.gpus) == len(gpus)
    for row in rows:
        if devices.get(row["device"], {}).get("kind") == "host":
            cpu = host_share(recording, devices[row["device"]]).cpu
            sound = phase.is_known(phase.values(row["device"], "cpu (%)") if cpu is None else cpu)
            phase.hosts.append(row if sound else {**row, "utilisation mean (%)": NAN})
    return phase


def idle_pauses(phase: Phase, device: str) -> tuple[float, int]:
    """The percentage of a phase without work, and the number of pauses.

    The pause with which a repeat begins, while its loader fills, is not counted.
    """
    values = phase.values(device, "utilisation (%)")
    if phase.recording.step > COARSE:
        return 0.0, 0
    edges = np.append(phase.recording.times, phase.recording.end)
    idle = counted = 0.0
    count = 0
    for start, end in phase.stretches:
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


def _shared(phase: Phase) -> Found:
    others = {phase.name(row): row.get("others' SM use mean (%)", NAN) for row in phase.gpus}
    taken = {name: share for name, share in others.items() if share >= OTHERS}
    if not taken:
        return None
    most = max(taken, key=lambda name: taken[name])
    also = f" ({len(taken)} GPUs were shared)" if len(taken) > 1 else ""
    return (
        f"{most} was shared: other programs took {taken[most]:.0f} % of its SMs' time{also}, so "
        "that no metric is of this program alone",
        {"others' SM use mean (%)": taken[most]},
    )


def _input_bound(phase: Phase) -> Found:
    cpus = [row.get("utilisation mean (%)", NAN) for row in phase.hosts]
    cpu = sum(cpus) / len(cpus) if cpus else NAN
    # One that is not known, NaN, is neither.
    full = bool(cpus) and all(share >= FULL_CPU for share in cpus)
    free = bool(cpus) and all(share < FREE_CPU for share in cpus)
    pauses = [idle_pauses(phase, row["device"]) for row in phase.gpus]
    metrics = {} if math.isnan(cpu) else {"CPU mean (%)": cpu}
    if pauses and all(share >= IDLE_SHARE and count >= PAUSES for share, count in pauses):
        share, count = (min(each) for each in zip(*pauses, strict=True))
        least = "at least " if len(pauses) > 1 else ""
        why = ""
        if full:
            why = f", while the CPU was {cpu:.0f} % busy: the CPU is the limit"
        elif free:
            why = (
                f", while the CPU was {cpu:.0f} % busy: the wait is for something else, such as a "
                "disk, a network or too few workers"
            )
        said = f"{phase.together} had no work for {least}{share:.0f} % of the time, in "
        return f"{said}{least}{count:.0f} pauses{why}", {
            "idle share (%)": share,
            "pauses (count)": float(count),
            **metrics,
        }
    busy = [row["utilisation mean (%)"] for row in phase.gpus]
    if full and busy and max(busy) <= FLAT:
        mean = sum(busy) / len(busy)
        return (
            f"the CPU was {cpu:.0f} % busy and {phase.together} only {mean:.0f} %: "
            "the CPU is the limit",
            {"utilisation mean (%)": mean, **metrics},
        )
    return None


def _throttled(phase: Phase) -> Found:
    """Only what was throttled at work counts: an idle GPU's clock is low by itself."""
    found = []
    for row in phase.gpus:
        if "throttled share (%)" not in row:
            continue
        busy = phase.values(row["device"], "utilisation (%)")
        bits = phase.values(row["device"], "throttle reasons (bits)")
        held = throttled(bits)
        places, seconds = phase.weights
        at_work = ((busy >= IDLE_BELOW) & (held == 1))[places]
        share = 100 * float(seconds[at_work].sum()) / phase.seconds
        clock = phase.values(row["device"], "SM clock (MHz)")
        clock = np.where(busy >= AT_WORK, clock, NAN)
        lower, usual = (
            stats.known(np.where(held == state, clock, NAN), phase.weights).mean()
            for state in (1, 0)
        )
        # Else the driver names a reason, and the clock hardly knows.
        if share >= THROTTLED_SHARE and not lower > LOWER_CLOCK * usual:
            found.append((share, lower, usual, _cause(stats.known(bits, phase.weights)), row))
    if not found:
        return None
    share, lower, usual, why, row = max(found, key=lambda each: each[0])
    clocks, metrics = "", {"throttled share (%)": share}
    if lower < usual:
        clocks = f", to {lower:,.0f} instead of {usual:,.0f} MHz"
        metrics |= {"SM clock while throttled (MHz)": lower, "SM clock otherwise (MHz)": usual}
    how = f"for {share:.0f} % of the time{clocks} ({why})"
    return f"{phase.name(row)} ran with throttled clocks {how}", metrics


def _cause(bits: stats.Known) -> str:
    """What held the clocks down for most of the time."""
    seconds: dict[str, float] = {}
    for value, held in zip(*bits, strict=True):
        for why in reasons(int(value) & THROTTLING):
            seconds[why] = seconds.get(why, 0.0) + held
    return max(seconds, key=lambda name: seconds[name], default="")


def _imbalanced(phase: Phase) -> Found:
    shares = {phase.name(row): row["utilisation mean (%)"] for row in phase.gpus}
    imbalance = stats.imbalance(list(shares.values()))
    if not imbalance >= IMBALANCE or max(shares.values()) < HIGHEST:
        return None
    high, low = (each(shares, key=lambda name: shares[name]) for each in (max, min))
    return (
        f"{high} was {shares[high]:.0f} % busy and {low} {shares[low]:.0f} %: the work is "
        "not shared out evenly",
        {
            "utilisation imbalance (%)": imbalance,
            "highest utilisation (%)": shares[high],
            "lowest utilisation (%)": shares[low],
        },
    )


def _means(phase: Phase, column: str) -> list[float]:
    return [row.get(column, NAN) for row in phase.gpus]


def _low_occupancy(phase: Phase) -> Found:
    busy, activity = (_means(phase, each) for each in ("utilisation mean (%)", ACTIVITY))
    if not (min(busy, default=0.0) >= BUSY and all(share < FILLED for share in activity)):
        return None
    mean, filled = sum(busy) / len(busy), sum(activity) / len(activity)
    return (
        f"{phase.together} ran a kernel for {mean:.0f} % of the time, but those filled only "
        f"{filled:.0f} % of the SMs: larger batches or fewer, larger kernels would fill more",
        {"utilisation mean (%)": mean, ACTIVITY: filled},
    )


def _ok(phase: Phase) -> Found:
    busy, activity = (_means(phase, each) for each in ("utilisation mean (%)", ACTIVITY))
    if not (min(busy, default=0.0) >= BUSY and phase.all_took_part):
        return None
    metrics = {"utilisation mean (%)": sum(busy) / len(busy)}
    if all(share >= FILLED for share in activity):
        filled = metrics[ACTIVITY] = sum(activity) / len(activity)
        how = f"with {filled:.0f} % SM activity"
    else:
        limits = {one["name"]: one.get("power limit (W)") or NAN for one in phase.recording.gpus}
        power = [100 * row.get("power mean (W)", NAN) / limits[row["device"]] for row in phase.gpus]
        if any(share < FILLED for share in activity) or not all(p >= FILLED_POWER for p in power):
            return None
        drawn = metrics["power mean (% of the limit)"] = sum(power) / len(power)
        how = f"at {drawn:.0f} % of the power limit"
    mean = metrics["utilisation mean (%)"]
    return f"{phase.together} had work for {mean:.0f} % of the time, {how}", metrics


RULES: Sequence[Callable[[Phase], Found]] = (
    *(_shared, _input_bound, _throttled, _imbalanced, _low_occupancy, _ok),
)


def sentences(found: Sequence[Diagnosis]) -> list[str]:
    """The diagnoses as lines: ``train: GPU 0 had no work for 51 % of the time, ...``."""
    return [
        f"{'' if one.phase == WHOLE else f'{one.phase}: '}"
        f"{one.sentence[:1].upper()}{one.sentence[1:]}."
        for one in found
    ]
