"""This module writes the notes under a chart: the diagnosis, missing data and lost GPUs."""

from __future__ import annotations

from gpumon.diagnosis import diagnose, sentences
from gpumon.recording import Recording
from gpumon.words import duration_text, process_label, qualified_gpu_name, time_text

MOST_GAPS = 3
MOST_NEIGHBOURS = 3
MOST_DIAGNOSES = 4


def notes(recording: Recording) -> list[str]:
    """Why there is no GPU, what held the program back, and the losses."""
    nvml = recording.header["nvml"]
    absent = nvml.get("reason") and not recording.gpus and not nvml.get("code")
    none = [f"No GPU lane: {nvml['reason']}."] if absent else []
    found = sentences(diagnose(recording))
    more = len(found) - MOST_DIAGNOSES
    if more > 0:
        phases = f"phase{'s' * (more > 1)}"
        found = [*found[:MOST_DIAGNOSES], f"`gpumon summary` judges {more} more {phases}."]
    times = recording.header.get("thinned", 1)
    kept = f"one of {times} samples was kept, one every {duration_text(recording.step)}"
    thinned = [f"The trace is long: {kept}."] if times > 1 else []
    return none + found + problems(recording) + thinned


def problems(recording: Recording) -> list[str]:
    """Lost and shared GPUs, missing samples, and what could not be read."""
    nvml, lines = recording.header["nvml"], recording.damaged
    # A driver that is there and failed: there may be GPUs, and none could be watched.
    found = [f"No GPU was watched: {nvml.get('reason')}."] if nvml.get("code") else []
    found += [f"{gpu['order']}." for gpu in recording.gpus if "order" in gpu]
    sums = " From then on, sums over all GPUs are not known." if len(recording.gpus) > 1 else ""
    found += [
        f"{qualified_gpu_name(event['device'])} was lost {at_time(event['t'], recording)}: "
        f"{event['reason']}.{sums}"
        for event in recording.events
        if event["event"] == "device lost"
    ]
    found += _shared(recording) + _gaps(recording) + recording.header.get("clocks", [])
    if lines:
        found.append(
            f"{lines} damaged line{'s' * (lines > 1)} of {recording.prefix.name} left out."
        )
    return list(dict.fromkeys(found))


def _shared(recording: Recording) -> list[str]:
    shared = [event for event in recording.events if event["event"] == "shared"]
    found = []
    for device in dict.fromkeys(event["device"] for event in shared):
        events = [event for event in shared if event["device"] == device]
        who = ", ".join(map(process_label, events[:MOST_NEIGHBOURS]))
        more = len(events) - MOST_NEIGHBOURS
        who += f" and {more} more" if more > 0 else ""
        found.append(
            f"{qualified_gpu_name(device)} was shared from "
            f"{at_time(events[0]['t'], recording)[3:]} on, with "
            f"{who}: its numbers are not the program's alone."
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
        f"recorded and are in no number: {gap['reason']}."
        for gap in sorted(longest, key=lambda gap: gap["t"])
    ]
    if more:
        seconds = sum(gap["seconds"] for gap in more)
        there = f"are {len(more)} shorter gaps" if len(more) > 1 else "is 1 shorter gap"
        found.append(f"There {there}, of {duration_text(seconds)} in all.")
    return found
