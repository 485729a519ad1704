"""This module prepares lanes that are drawn only for shared GPUs or on request.

A lane of requested series has its own scale, from 0 to a round number, which its ``top`` names.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpumon import stats
from gpumon.drawing.lanes import Lane, Line, figure_text, memory_line
from gpumon.errors import MonitorError
from gpumon.event_messages import HARDWARE, event_label, gpu_name, throttle_intervals
from gpumon.recording import Recording

KINDS = ("first", "second", "third", "fourth")
MOST_MARKS = 8
GROUPS = {
    "clocks": ("sm clock", "memory clock"),
    "page faults": ("page faults", "major page faults"),
    "ecc": ("ecc errors", "remapped rows", "retired pages", "xids"),
}
"""Names for several quantities; any other name is the beginning of a quantity's own."""
ADDING_UP = ("count)", "J)")
"""Units of what is counted since the start, of which a mean says nothing."""


def event_marks(recording: Recording, device: str) -> list[tuple[float, str]]:
    """Moments of a GPU: errors of the hardware, and where its clocks begin to be throttled."""
    found = [
        (float(event["t"]), event_label(event))
        for event in recording.events
        if event["event"] in HARDWARE and event["device"] == device
    ]
    bits = recording.series(f"{device}/throttle reasons (bits)") or ()
    throttled: dict[str, float] = {}
    for start, _, why in throttle_intervals(recording.times, bits, recording.end):
        throttled.setdefault(why, start)
    found += [(start, why) for why, start in throttled.items()]
    return sorted(found)[:MOST_MARKS]


def complete_parent(
    lane: Lane, recording: Recording, device: dict[str, Any], weights: stats.Weights
) -> None:
    """The lane of a whole GPU whose MIG instances are watched: power, temperature and clock."""
    lane.reason = ""
    lane.subtitle = f"{lane.subtitle}, whole"
    for quantity, unit, kind, least in (
        ("temperature", "C", "first", 100.0),
        ("SM clock", "MHz", "second", 0.0),
    ):
        key = f"{device['name']}/{quantity} ({unit})"
        if recording.series(key) is not None:
            full = max(least, _round_up(_most(recording, [key])))
            lane.lines.append(_line(recording, key, kind, full, weights))


def sharing_lanes(
    recording: Recording, device: dict[str, Any], weights: stats.Weights
) -> list[Lane]:
    """A second lane of a GPU that was shared: what the program used of it, and what others did."""
    name = device["name"]
    if not any(count > 0 for count in recording.series(f"{name}/other processes (count)") or ()):
        return []
    lane = Lane(name, f"{gpu_name(name)}, whose", "mine and others'")
    words = {"mine": "mine", "others": "others'"}
    for whose, word in words.items():
        use = recording.series(f"{name}/SM use {whose} (%)")
        if use is not None:
            note = figure_text(stats.mean(stats.known(use, weights)), f"% SM {word}")
            lane.lines.append(Line(whose, "", np.asarray(use), note, short=f"SM use, {word}"))
    for whose, word in words.items():
        if line := memory_line(recording, device, f"memory {whose} (MiB)", weights):
            line.kind, line.label, line.short = f"memory_{whose}", "", f"memory, {word}"
            line.note = f"{line.note.removesuffix(' peak')} {word}"
            lane.lines.append(line)
    return [lane]


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
    values = np.asarray(recording.series(key))
    known = stats.known(values.tolist(), weights)
    if not known:
        note = f"{quantity} unknown"
    elif unit == "bits)":
        note = f"{quantity}, bits"
    elif unit in ADDING_UP:
        note = f"{quantity} up to {_digits(stats.peak(known))} {shown}".rstrip()
    else:
        note = f"{quantity} {_digits(stats.mean(known))} {shown}".rstrip()
    return Line(kind, "", 100 * values / full, note, full / 100, shown, quantity)


def _most(recording: Recording, keys: Sequence[str]) -> float:
    return max(float(np.nanmax(recording.series(key))) for key in keys)  # type: ignore[arg-type]


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
