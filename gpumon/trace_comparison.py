"""This module lists what changed from one trace to another, phase by phase.

Every repeat of a phase is measured by itself; what several ranks mark at once is one. Where both
traces have several, a figure has changed if their ranges do not overlap; where one has a single
repeat, a change cannot be distinguished from chance, and the lines say so. What is known of a part
of a repeat is no figure of it, and a phase that never ended is none.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpumon import stats
from gpumon.diagnosis import line
from gpumon.phase_metrics import IDLE_BELOW, MEASURED, host_share
from gpumon.recording import Recording
from gpumon.summary import WHOLE, summarize
from gpumon.trace import Trace
from gpumon.words import Row, cores_text, duration_text

FIGURES = {
    "utilisation mean (%)": "GPU utilisation (%)",
    "idle share (%)": "idle share (%)",
    "SM activity mean (%)": "SM activity (%)",
    "throttled share (%)": "throttled share (%)",
    "utilisation imbalance (%)": "utilisation imbalance (%)",
    "memory peak (MiB)": "memory peak (MiB)",
    "power mean (W)": "power (W)",
    "energy (J)": "energy (J)",
    "items/J": "items/J",
}
TIMES = {"seconds": "seconds", "items/s": "items/s"}
HOST = {"utilisation mean (%)": "CPU (%)"}
HOST_ALONE = {**HOST, "memory peak (MiB)": "memory peak (MiB)"}
LITTLE = 1.0
"""Percent, or points of a share: a smaller change is not reported, whatever the spread."""


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
    def is_single(self) -> bool:
        return min(len(self.before), len(self.after)) == 1

    @property
    def is_significant(self) -> bool:
        """Whether no repeat of one trace is within the range of the other's."""
        separate = max(self.before) < min(self.after) or max(self.after) < min(self.before)
        return not self.is_single and separate and abs(self.difference) >= LITTLE

    def text(self) -> str:
        """``seconds 61.2 (60.1 to 62.3) -> 38 (37.5 to 38.9), 38 % less``."""
        by = abs(self.difference)
        point = "point" if f"{by:.0f}" == "1" else "points"
        size = f"{by:.0f} {point if self.is_share else '%'} " if by < 1000 else "many times "
        size *= math.isfinite(by)  # of none
        way = "more" if self.difference > 0 else "less"
        least = "1 point" if self.is_share else "1 %"
        reported = f"{size}{way}" if by >= LITTLE else f"less than {least} difference"
        return f"{self.figure} {_spread(self.before)} -> {_spread(self.after)}, {reported}"


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
    lines += configuration_differences(before.recording, after.recording, names)
    found = changes(before, after)
    said = [{one.phase: line(one) for one in trace.diagnosis()} for trace in (before, after)]
    for phase, each in found.items():
        name = "the whole run" if phase == WHOLE else phase
        counts = [
            max((len(values) for values in sides), default=0)
            for sides in ([c.before for c in each], [c.after for c in each])
        ]
        if min(counts) == 1:
            how = "once in each: no spread is known"
            if counts != [1, 1]:
                how = f"{counts[0]} and {counts[1]} times: of one trace no spread is known"
            lines.append(f"{name} ({how}, so any difference may be chance)")
            reported = [change for change in each if abs(change.difference) >= LITTLE]
            alone: list[Change] = []
            nothing = "within 1 % or 1 point"
        else:
            lines.append(f"{name} ({counts[0]} and {counts[1]} times; median, range)")
            reported = [change for change in each if change.is_significant]
            alone = [change for change in each if change.is_single]
            nothing = "no change beyond the range of the repeats and 1 % or 1 point"
        rest = [change for change in each if change not in reported and change not in alone]
        lines += [f"  {change.text()}" for change in reported]
        lines += [f"  {change.text()}; known once, it may be chance" for change in alone]
        if rest:
            lines.append(f"  {nothing}: {', '.join(change.figure for change in rest)}")
        lines += [f"  {own}: {of[phase]}" for own, of in zip(names, said) if phase in of]
    for own, name, other in ((before, names[0], after), (after, names[1], before)):
        theirs = {mark.name for mark in other.recording.marks}
        lines += [
            f"{phase}: only in {name}, {duration_text(seconds)}"
            for phase, seconds in _seconds(own.recording).items()
            if phase not in theirs
        ]
        open_ones = dict.fromkeys(mark.name for mark in own.recording.marks if mark.open)
        lines += [
            f"{phase}: a repeat that did not end in {name} is left out" for phase in open_ones
        ]
    return lines


def configuration_differences(
    before: Recording, after: Recording, names: tuple[str, str]
) -> list[str]:
    """Why figures of the two traces may not compare: devices, hosts, sampling."""
    lines = []
    kinds = [_devices(each) for each in (before, after)]
    if kinds[0] != kinds[1]:
        lines.append(
            f"Different devices: {names[0]} has {kinds[0]}, {names[1]} {kinds[1]}. Sums and means "
            "over them do not compare."
        )
    parts = [_part_of_host(each) for each in (before, after)]
    if parts[0] != parts[1]:
        lines.append(
            f"Different parts of the host: {names[0]} might use {parts[0]}, {names[1]} {parts[1]}. "
            "Figures of the host do not compare."
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
            f"{coarse} is read as means over 20 s: its idle shares are of these, and miss what is "
            "short."
        )
    return lines


def _devices(recording: Recording) -> str:
    """``2 x NVIDIA H200, 1 x host of 64 cores``."""
    counts: dict[str, int] = {}
    for device in recording.devices:
        if device["kind"] == "parent":
            continue  # its instances are listed
        kind = device.get("product") or f"host of {cores_text(device)}"
        counts[kind] = counts.get(kind, 0) + 1
    return ", ".join(f"{count} x {kind}" for kind, count in counts.items())


def _part_of_host(recording: Recording) -> str:
    """``2 of 4 cores``; ``all`` where nothing limited the program, or there are several hosts."""
    hosts = [device for device in recording.devices if device["kind"] == "host"]
    mine = host_share(recording, hosts[0]) if len(hosts) == 1 else None
    return f"{mine.cores:g} of {cores_text(hosts[0])}" if mine and mine.cpu else "all"


def _figures(recording: Recording) -> dict[str, dict[str, list[float]]]:
    """By phase and figure: the value of each repeat, in order. What is not known is left out."""
    ended = replace(recording, marks=[mark for mark in recording.marks if not mark.open])
    rows: list[Row] = summarize(ended, "repeat", IDLE_BELOW)
    if len(ended.marks) < len(recording.marks):
        # The whole run has the items of all phases, or it is not known how many.
        every = summarize(recording, "phase", IDLE_BELOW)
        rows = [row for row in every if row["phase"] == WHOLE] + [
            row for row in rows if row["phase"] != WHOLE
        ]
    hosts = [device["name"] for device in recording.devices if device["kind"] == "host"]
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row["device"] == ("gpus" if recording.gpus else hosts[0]):
            _add(found, row, TIMES)
        if row["measured (s)"] < MEASURED * row["seconds"]:
            continue
        if row["device"] == "gpus":
            _add(found, row, {key: name for key, name in FIGURES.items() if _is_whole(row, key)})
        elif hosts == [row["device"]]:
            _add(found, row, HOST if recording.gpus else HOST_ALONE)
    return found


def _is_whole(row: Row, column: str) -> bool:
    """Whether a figure is of nearly all of the repeat, as joules may not be."""
    covers = row.get("energy covers (s)", math.nan)
    return column != "energy (J)" or covers >= MEASURED * row["seconds"]


def _add(found: dict[str, dict[str, list[float]]], row: Row, figures: dict[str, str]) -> None:
    own = found.setdefault(row["phase"], {})
    for column, name in figures.items():
        value = row.get(column, math.nan)
        if not math.isnan(value):
            own.setdefault(name, []).append(value)


def _seconds(recording: Recording) -> dict[str, float]:
    """By phase, for how long it was open in any process."""
    spans: dict[str, list[stats.Span]] = {}
    for mark in recording.marks:
        spans.setdefault(mark.name, []).append((mark.start, mark.end))
    return {
        name: sum(end - start for start, end in stats.union(own)) for name, own in spans.items()
    }


def _spread(values: Sequence[float]) -> str:
    middle = _short(statistics.median(values))
    if len(values) == 1:
        return middle
    return f"{middle} ({_short(min(values))} to {_short(max(values))})"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
