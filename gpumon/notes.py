"""What the reader of a chart or a table must know of a trace, in sentences."""

from __future__ import annotations

from typing import Any

from gpumon.meaning import gpu_name, neighbour
from gpumon.recording import Recording
from gpumon.units import clock, lasting

MOST_GAPS = 3
MOST_NEIGHBOURS = 3


def notes(recording: Recording) -> list[str]:
    """Why there is no GPU, and the losses."""
    reason = recording.header["nvml"].get("reason")
    none = [f"No GPU lane: {reason}."] if reason and not recording.gpus else []
    return none + losses(recording)


def losses(recording: Recording) -> list[str]:
    """Which GPUs were lost or shared, where samples are missing, and what could not be read."""
    lost = [
        f"{event['device']} was lost {at(event['t'], recording)}: {event['reason']}. "
        "From then on, sums over all GPUs are not known."
        for event in recording.events
        if event["event"] == "device lost"
    ]
    return lost + _shared(recording) + _gaps(recording) + _damaged(recording)


def _shared(recording: Recording) -> list[str]:
    """A sentence for each GPU that others used too."""
    by_device: dict[str, list[dict[str, Any]]] = {}
    for event in recording.events:
        if event["event"] == "shared":
            by_device.setdefault(event["device"], []).append(event)
    told = []
    for device, events in by_device.items():
        who = ", ".join(map(neighbour, events[:MOST_NEIGHBOURS]))
        more = len(events) - MOST_NEIGHBOURS
        who += f" and {more} more" if more > 0 else ""
        told.append(
            f"{gpu_name(device)} was shared from {at(events[0]['t'], recording)[3:]} on, with "
            f"{who}: its figures are not the program's alone."
        )
    return told


def at(second: float, recording: Recording) -> str:
    return f"at {clock(round(second, 1), recording.end)}"


def _gaps(recording: Recording) -> list[str]:
    by_length = sorted(recording.gaps, key=lambda gap: -gap["seconds"])
    longest, more = by_length[:MOST_GAPS], by_length[MOST_GAPS:]
    told = [
        f"From {clock(round(gap['t'], 1), recording.end)} on, {lasting(gap['seconds'])} were not "
        f"recorded and are in no figure: {gap['reason']}."
        for gap in sorted(longest, key=lambda gap: gap["t"])
    ]
    if more:
        seconds = sum(gap["seconds"] for gap in more)
        told.append(f"There are {len(more)} shorter gaps, of {lasting(seconds)} in all.")
    return told


def _damaged(recording: Recording) -> list[str]:
    lines = recording.damaged
    if not lines:
        return []
    return [f"{lines} damaged line{'s' * (lines > 1)} of {recording.prefix.name} left out."]
