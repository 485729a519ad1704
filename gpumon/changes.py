"""What changed from one trace to another, phase by phase, in lines for people.

Every repeat of a phase is measured by itself; what several ranks mark at once is one. Where both
traces have several, a figure has changed if their ranges do not overlap; where one has a single
repeat, nothing tells a change from chance, and the lines say so.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from gpumon.diagnosis import sentences
from gpumon.recording import Recording
from gpumon.summary import WHOLE, summarize
from gpumon.tables import Row
from gpumon.trace import Trace
from gpumon.units import lasting

FIGURES = {
    "seconds": "seconds",
    "images/s": "images/s",
    "utilisation mean (%)": "GPU utilisation (%)",
    "idle share (%)": "idle share (%)",
    "SM activity mean (%)": "SM activity (%)",
    "slowed share (%)": "slowed share (%)",
    "utilisation imbalance (%)": "utilisation imbalance (%)",
    "memory peak (MiB)": "memory peak (MiB)",
    "power mean (W)": "power (W)",
    "energy (J)": "energy (J)",
    "images/J": "images/J",
}
HOST = {"utilisation mean (%)": "CPU (%)"}
LITTLE = 1.0
"""Percent, or points of a share: less is nobody's change, whatever the spread."""


@dataclass(frozen=True)
class Change:
    """A figure of a phase, of each of its repeats before and after."""

    figure: str
    before: list[float]
    after: list[float]

    @property
    def difference(self) -> float:
        """Between the medians: in points where the figure is a share, else in percent."""
        old, new = statistics.median(self.before), statistics.median(self.after)
        if self.is_share:
            return new - old
        return 100 * (new - old) / old if old else math.inf if new else 0.0

    @property
    def is_share(self) -> bool:
        return self.figure.endswith("(%)")

    @property
    def is_once(self) -> bool:
        return min(len(self.before), len(self.after)) == 1

    @property
    def is_sure(self) -> bool:
        """Whether no repeat of one trace is within the range of the other's."""
        apart = max(self.before) < min(self.after) or max(self.after) < min(self.before)
        return not self.is_once and apart and abs(self.difference) >= LITTLE

    def text(self) -> str:
        """``seconds 61.2 (60.1 to 62.3) -> 38 (37.5 to 38.9), 38 % less``."""
        by = abs(self.difference)
        size = f"{by:.0f} {'points' if self.is_share else '%'}" if by < 1000 else "many times"
        way = "more" if self.difference > 0 else "less"
        told = f"{size} {way}" if by >= LITTLE else "no more than 1 % apart"
        return f"{self.figure} {_spread(self.before)} -> {_spread(self.after)}, {told}"


def changes(before: Trace, after: Trace) -> dict[str, list[Change]]:
    """What both traces measured of the phases that both have; ``(all)`` is the whole run."""
    old, new = _figures(before.recording), _figures(after.recording)
    return {
        phase: [
            Change(figure, values, new[phase][figure])
            for figure, values in old[phase].items()
            if figure in new[phase]
        ]
        for phase in old
        if phase in new
    }


def describe(before: Trace, after: Trace, names: tuple[str, str]) -> list[str]:
    """What changed, in lines, with what makes the two unlike and each one's diagnosis.

    names: of the two traces.
    """
    lines = [f"{names[0]} -> {names[1]}"]
    lines += unlike(before.recording, after.recording, names)
    found = changes(before, after)
    said = [_by_phase(trace) for trace in (before, after)]
    for phase, each in found.items():
        name = "the whole run" if phase == WHOLE else phase
        counts = [max(len(values) for values in sides) for sides in _sides(each)]
        once = any(change.is_once for change in each)
        if once:
            how = "once in each" if counts == [1, 1] else f"{counts[0]} and {counts[1]} times"
            lines.append(f"{name} ({how}: no spread is known, so any difference may be chance)")
            told = [change for change in each if abs(change.difference) >= LITTLE]
            rest = [change for change in each if abs(change.difference) < LITTLE]
            nothing = "within 1 %"
        else:
            lines.append(f"{name} ({counts[0]} and {counts[1]} times; median, range)")
            told = [change for change in each if change.is_sure]
            rest = [change for change in each if not change.is_sure]
            nothing = "no change beyond the range of the repeats"
        lines += [f"  {change.text()}" for change in told]
        if rest:
            lines.append(f"  {nothing}: {', '.join(change.figure for change in rest)}")
        lines += [
            f"  {own}: {sentence}"
            for own, sentences_of in zip(names, said)
            for sentence in sentences_of.get(phase, [])
        ]
    for mine, other, name in ((before, after, names[0]), (after, before, names[1])):
        theirs = _seconds(other.recording)
        for phase, seconds in _seconds(mine.recording).items():
            if phase not in theirs:
                lines.append(f"{phase}: only in {name}, {lasting(seconds)}")
    return lines


def unlike(before: Recording, after: Recording, names: tuple[str, str]) -> list[str]:
    """Why figures of the two traces may not compare: devices, hosts, sampling."""
    lines = []
    kinds = [_devices(each) for each in (before, after)]
    if kinds[0] != kinds[1]:
        lines.append(
            f"Different devices: {names[0]} has {kinds[0]}, {names[1]} {kinds[1]}. Sums and means "
            "over GPUs do not compare."
        )
    rates = [each.header["interval (s)"] for each in (before, after)]
    if rates[0] != rates[1]:
        lines.append(
            f"Different rates: a sample every {rates[0]:g} s in {names[0]}, {rates[1]:g} s in "
            f"{names[1]}. Idle shares and peaks of the slower one miss what is short."
        )
    if (before.ranges is None) != (after.ranges is None):
        coarse = names[0] if before.ranges is not None else names[1]
        lines.append(
            f"{coarse} is read as means over 20 s: its peaks and idle shares are of these."
        )
    return lines


def _devices(recording: Recording) -> str:
    """``2 x NVIDIA H200, a host of 64 cores``."""
    counts: dict[str, int] = {}
    for device in recording.devices:
        kind = device.get("product") or f"host of {device['cores']} cores"
        counts[kind] = counts.get(kind, 0) + (device["kind"] != "parent")
    return ", ".join(f"{count} x {kind}" for kind, count in counts.items())


def _figures(recording: Recording) -> dict[str, dict[str, list[float]]]:
    """By phase and figure: the value of each repeat, in order. What is not known is left out."""
    _, rows = summarize(recording, "repeat", 5.0)
    kinds = {device["name"]: device["kind"] for device in recording.devices}
    hosts = [name for name, kind in kinds.items() if kind == "host"]
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row["device"] == "gpus" or (not recording.gpus and row["device"] in hosts[:1]):
            _add(found, row, FIGURES if row["device"] == "gpus" else _of_host_alone())
        if row["device"] in hosts and len(hosts) == 1 and recording.gpus:
            _add(found, row, HOST)
    return found


def _of_host_alone() -> dict[str, str]:
    return {"seconds": "seconds", "images/s": "images/s", **HOST, "memory peak (MiB)": "memory"}


def _add(found: dict[str, dict[str, list[float]]], row: Row, figures: dict[str, str]) -> None:
    own = found.setdefault(row["phase"], {})
    for column, name in figures.items():
        value = row.get(column, math.nan)
        if not math.isnan(value):
            own.setdefault(name, []).append(value)


def _sides(each: Sequence[Change]) -> list[list[list[float]]]:
    return [[change.before for change in each] or [[]], [change.after for change in each] or [[]]]


def _seconds(recording: Recording) -> dict[str, float]:
    found: dict[str, float] = {}
    for mark in recording.marks:
        found[mark.name] = found.get(mark.name, 0.0) + mark.end - mark.start
    return found


def _by_phase(trace: Trace) -> dict[str, list[str]]:
    said: dict[str, list[str]] = {}
    for one in trace.diagnosis():
        (text,) = sentences([one])
        start = f"{one.phase}: "
        said.setdefault(one.phase, []).append(
            text[len(start) :] if text.startswith(start) else text
        )
    return said


def _spread(values: Sequence[float]) -> str:
    middle = _short(statistics.median(values))
    if len(values) == 1:
        return middle
    return f"{middle} ({_short(min(values))} to {_short(max(values))})"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
