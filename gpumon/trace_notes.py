"""This module writes the notes under a chart: the diagnosis, missing data and lost GPUs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from gpumon.diagnosis import diagnose, sentences
from gpumon.recording import Recording
from gpumon.words import (
    THROTTLING,
    duration_text,
    process_label,
    qualified_gpu_name,
    reasons,
    time_text,
)

MOST_GAPS = 3
MOST_NEIGHBOURS = 3
MOST_DIAGNOSES = 4
THROTTLED_SHARE = 0.01
"""The share of the whole time from which a sentence speaks of it; the chart shows less, too."""


def notes(recording: Recording) -> list[str]:
    """Why there is no GPU, what held the program back, and the losses."""
    reason = recording.header["nvml"].get("reason")
    absent = reason and not recording.gpus and not _failed(recording)
    none = [f"No GPU lane: {reason}."] if absent else []
    found = sentences(diagnose(recording))
    more = len(found) - MOST_DIAGNOSES
    if more > 0:
        phases = f"phase{'s' * (more > 1)}"
        found = [*found[:MOST_DIAGNOSES], f"`gpumon summary` judges {more} more {phases}."]
    return none + found + problems(recording) + _thinned(recording)


def _thinned(recording: Recording) -> list[str]:
    times = recording.header.get("thinned", 1)
    return [
        f"The trace is long: one of {times} samples was kept, one every "
        f"{duration_text(recording.step)}."
    ] * (times > 1)


def problems(recording: Recording) -> list[str]:
    """Lost and shared GPUs, missing samples, and what could not be read."""
    sums = " From then on, sums over all GPUs are not known." if len(recording.gpus) > 1 else ""
    lost = {
        f"{qualified_gpu_name(event['device'])} was lost {at_time(event['t'], recording)}: "
        f"{event['reason']}.{sums}": None
        for event in recording.events
        if event["event"] == "device lost"
    }
    return (
        _failed(recording)
        + list(dict.fromkeys(f"{gpu['order']}." for gpu in recording.gpus if "order" in gpu))
        + list(lost)
        + _throttled(recording)
        + _shared(recording)
        + _gaps(recording)
        + recording.header.get("clocks", [])
        + _damaged(recording)
    )


def _failed(recording: Recording) -> list[str]:
    """A driver that is there and failed: there may be GPUs, and none could be watched."""
    nvml = recording.header["nvml"]
    return [f"No GPU was watched: {nvml.get('reason')}."] if nvml.get("code") else []


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


def _throttled(recording: Recording) -> list[str]:
    """For how long power or heat held which GPU's clocks down."""
    found = []
    for device in recording.devices:
        seconds: dict[str, list[float]] = {}
        for start, end, why in throttle_intervals(recording, device["name"]):
            seconds.setdefault(why, []).append(end - start)
        found += [
            f"{qualified_gpu_name(device['name'])}: clocks throttled ({why}) for "
            f"{duration_text(sum(each))}, "
            f"in {len(each)} stretch{'es' * (len(each) > 1)}."
            for why, each in seconds.items()
            if sum(each) >= THROTTLED_SHARE * recording.end
        ]
    return found


def _shared(recording: Recording) -> list[str]:
    by_device: dict[str, list[dict[str, Any]]] = {}
    for event in recording.events:
        if event["event"] == "shared":
            by_device.setdefault(event["device"], []).append(event)
    found = []
    for device, events in by_device.items():
        who = ", ".join(map(process_label, events[:MOST_NEIGHBOURS]))
        more = len(events) - MOST_NEIGHBOURS
        who += f" and {more} more" if more > 0 else ""
        found.append(
            f"{qualified_gpu_name(device)} was shared from "
            f"{at_time(events[0]['t'], recording)[3:]} on, with "
            f"{who}: its figures are not the program's alone."
        )
    return found


def at_time(second: float, recording: Recording) -> str:
    return f"at {time_text(round(second, 1), recording.end)}"


def _gaps(recording: Recording) -> list[str]:
    by_length = sorted(recording.gaps, key=lambda gap: -gap["seconds"])
    longest, more = by_length[:MOST_GAPS], by_length[MOST_GAPS:]
    found = [
        f"From {time_text(round(gap['t'], 1), recording.end)} on, "
        f"{duration_text(gap['seconds'])} were not "
        f"recorded and are in no figure: {gap['reason']}."
        for gap in sorted(longest, key=lambda gap: gap["t"])
    ]
    if more:
        seconds = sum(gap["seconds"] for gap in more)
        there = f"are {len(more)} shorter gaps" if len(more) > 1 else "is 1 shorter gap"
        found.append(f"There {there}, of {duration_text(seconds)} in all.")
    return found


def _damaged(recording: Recording) -> list[str]:
    lines = recording.damaged
    if not lines:
        return []
    return [f"{lines} damaged line{'s' * (lines > 1)} of {recording.prefix.name} left out."]
