"""This module finds what limited each phase, and states it in a sentence with its numbers.

The rules are tried in the order of ``RULES``, and the first match gives the phase's sentence.
Causes that invalidate other numbers come first. Each rule is strict, because no sentence is better
than a wrong one. ``docs/gpumon.md`` has them as a table; the limits are here, and in
:mod:`gpumon.phase_metrics`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Optional

from gpumon import stats
from gpumon.phase_metrics import (
    Phase,
    idle_pauses,
    phase_of,
    throttle_cause,
    throttled_clocks,
    throttled_share,
)
from gpumon.recording import NAN, Recording
from gpumon.summary import WHOLE, rows_of
from gpumon.words import Row

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
        figures: the values behind the sentence, by name with unit.
    """

    phase: str
    kind: str
    sentence: str
    figures: dict[str, float]


Found = Optional["tuple[str, dict[str, float]]"]


def diagnose(recording: Recording) -> list[Diagnosis]:
    """The phases of which something is sure, in order of their start; see the module's docstring.

    A trace without phases counts as one phase, ``(all)``.
    """
    rows = rows_of(recording)
    by_phase: dict[str, list[Row]] = {}
    for row in rows:
        by_phase.setdefault(row["phase"], []).append(row)
    if len(by_phase) > 1:
        del by_phase[WHOLE]
    repeats: dict[str, list[stats.Span]] = {WHOLE: [(0.0, recording.end)]}
    for mark in recording.marks:
        repeats.setdefault(mark.name, []).append((mark.start, mark.end))
    found = []
    for name, own in by_phase.items():
        spans = stats.union(repeats[name])
        starts = sorted(start for start, _ in repeats[name])
        seconds = sum(end - start for start, end in spans)
        stretch = max(LEAST_STRETCH, FEW * recording.step)
        if seconds < LEAST_SECONDS or seconds / len(spans) < stretch:
            continue
        phase = phase_of(recording, spans, starts, own, seconds)
        for kind, rule in RULES.items():
            said = rule(phase)
            if said is not None:
                found.append(Diagnosis(name, kind, *said))
                break
    return found


def _shared(phase: Phase) -> Found:
    others = {phase.name(row): row.get("others' SM use mean (%)", NAN) for row in phase.gpus}
    taken = {name: share for name, share in others.items() if share >= OTHERS}
    if not taken:
        return None
    most = max(taken, key=lambda name: taken[name])
    also = f" ({len(taken)} GPUs were shared)" if len(taken) > 1 else ""
    return (
        f"{most} was shared: other programs took {taken[most]:.0f} % of its SMs' time{also}, so "
        "that no figure is this program's alone",
        {"others' SM use mean (%)": taken[most]},
    )


def _input_bound(phase: Phase) -> Found:
    cpus = [row.get("utilisation mean (%)", NAN) for row in phase.hosts]
    cpu = sum(cpus) / len(cpus) if cpus else NAN
    # One that is not known, NaN, is neither.
    full = bool(cpus) and all(share >= FULL_CPU for share in cpus)
    free = bool(cpus) and all(share < FREE_CPU for share in cpus)
    pauses = [idle_pauses(phase, row["device"]) for row in phase.gpus]
    figures = {} if math.isnan(cpu) else {"CPU mean (%)": cpu}
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
            **figures,
        }
    busy = [row["utilisation mean (%)"] for row in phase.gpus]
    if full and busy and max(busy) <= FLAT:
        mean = sum(busy) / len(busy)
        return (
            f"the CPU was {cpu:.0f} % busy and {phase.together} only {mean:.0f} %: "
            "the CPU is the limit",
            {"utilisation mean (%)": mean, **figures},
        )
    return None


def _throttled(phase: Phase) -> Found:
    known = [row for row in phase.gpus if "throttled share (%)" in row]
    shares = [(throttled_share(phase, row["device"]), row) for row in known]
    throttled = [(share, row) for share, row in shares if share >= THROTTLED_SHARE]
    for share, row in sorted(throttled, key=lambda found: -found[0]):
        device = row["device"]
        lower, usual = throttled_clocks(phase, device)
        if lower > LOWER_CLOCK * usual:
            continue  # the driver names a reason, and the clock hardly knows
        clocks = f", to {lower:,.0f} instead of {usual:,.0f} MHz" if lower < usual else ""
        figures = {"throttled share (%)": share}
        if clocks:
            figures |= {"SM clock while throttled (MHz)": lower, "SM clock otherwise (MHz)": usual}
        how = f"for {share:.0f} % of the time{clocks} ({throttle_cause(phase, device)})"
        return f"{phase.name(row)} ran with throttled clocks {how}", figures
    return None


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


def _is_busy(phase: Phase) -> bool:
    return bool(phase.gpus) and min(_means(phase, "utilisation mean (%)")) >= BUSY


def _low_occupancy(phase: Phase) -> Found:
    activity = _means(phase, "SM activity mean (%)")
    if not (_is_busy(phase) and all(share < FILLED for share in activity)):
        return None
    busy = _means(phase, "utilisation mean (%)")
    mean, filled = sum(busy) / len(busy), sum(activity) / len(activity)
    return (
        f"{phase.together} ran a kernel for {mean:.0f} % of the time, but those filled only "
        f"{filled:.0f} % of the SMs: larger batches or fewer, larger kernels would fill more",
        {"utilisation mean (%)": mean, "SM activity mean (%)": filled},
    )


def _ok(phase: Phase) -> Found:
    if not (_is_busy(phase) and phase.all_took_part):
        return None
    busy = _means(phase, "utilisation mean (%)")
    figures = {"utilisation mean (%)": sum(busy) / len(busy)}
    activity = _means(phase, "SM activity mean (%)")
    if all(share >= FILLED for share in activity):
        filled = figures["SM activity mean (%)"] = sum(activity) / len(activity)
        how = f"with {filled:.0f} % SM activity"
    else:
        limits = {one["name"]: one.get("power limit (W)") or NAN for one in phase.recording.gpus}
        power = [100 * row.get("power mean (W)", NAN) / limits[row["device"]] for row in phase.gpus]
        if any(share < FILLED for share in activity) or not all(p >= FILLED_POWER for p in power):
            return None
        drawn = figures["power mean (% of the limit)"] = sum(power) / len(power)
        how = f"at {drawn:.0f} % of the power limit"
    mean = figures["utilisation mean (%)"]
    return f"{phase.together} had work for {mean:.0f} % of the time, {how}", figures


RULES: dict[str, Callable[[Phase], Found]] = {
    "shared": _shared,
    "input_bound": _input_bound,
    "throttled": _throttled,
    "imbalanced": _imbalanced,
    "low_occupancy": _low_occupancy,
    "ok": _ok,
}


def sentences(found: Sequence[Diagnosis]) -> list[str]:
    """As lines for people: ``train: GPU 0 had no work for 51 % of the time, ...``."""
    return [("" if one.phase == WHOLE else f"{one.phase}: ") + line(one) for one in found]


def line(one: Diagnosis) -> str:
    """The sentence as it stands alone, without its phase."""
    return f"{one.sentence[:1].upper()}{one.sentence[1:]}."
