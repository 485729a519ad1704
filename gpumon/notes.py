"""What the reader of a chart or a table must know of a trace, in sentences."""

from __future__ import annotations

from typing import Any

from gpumon.recording import Recording
from gpumon.units import clock

MOST_GAPS = 3


def notes(recording: Recording) -> list[str]:
    """Why there is no GPU, and the losses."""
    reason = recording.header["nvml"].get("reason")
    none = [f"No GPU lane: {reason}."] if reason and not recording.gpus else []
    return none + losses(recording)


def losses(recording: Recording) -> list[str]:
    """Which GPUs were lost, where samples are missing, and what could not be read."""
    lost = [
        f"{event['device']} was lost {at(event['t'])}: {event['reason']}. "
        "From then on, sums over all GPUs are not known."
        for event in recording.events
        if event["event"] == "device lost"
    ]
    return lost + _gaps(recording) + _damaged(recording)


def at(second: float) -> str:
    return f"at {second:.1f} s"


def _gaps(recording: Recording) -> list[str]:
    by_length = sorted(recording.gaps, key=lambda gap: -gap["seconds"])
    longest, more = by_length[:MOST_GAPS], by_length[MOST_GAPS:]
    told = [
        f"From {clock(round(gap['t'], 1), recording.end)} on, {_lasting(gap)} were not recorded "
        f"and are in no figure: {gap['reason']}."
        for gap in sorted(longest, key=lambda gap: gap["t"])
    ]
    if more:
        told.append(f"There are {len(more)} shorter gaps, of {_lasting(*more)} in all.")
    return told


def _lasting(*gaps: dict[str, Any]) -> str:
    seconds = sum(gap["seconds"] for gap in gaps)
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds:.2g} s"


def _damaged(recording: Recording) -> list[str]:
    lines = recording.damaged
    if not lines:
        return []
    return [f"{lines} damaged line{'s' * (lines > 1)} of {recording.prefix.name} left out."]
