"""This module merges traces of several ranks or hosts on one time axis.

Traces of one boot share the monotonic clock. Those of different machines are aligned by their clock
offset where one was measured, else by wall time. If several ranks recorded a device, the first
record counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from gpumon.recording import Recording, Span
from gpumon.stats import Floats
from gpumon.trace_files import HUGE


def merge(recordings: Sequence[Recording]) -> Recording:
    """One recording whose zero is the earliest start among them."""
    names = _machine_names(recordings)
    several = len(set(names)) > 1
    shifts, sentences = _shifts(recordings, names)
    ends = [part.end + shift for part, shift in zip(recordings, shifts, strict=True)]
    # Where one ends before the others is a moment too: from there on its values are unknown.
    moments = [part.times + shift for part, shift in zip(recordings, shifts, strict=True)]
    times = np.unique(np.concatenate([*moments, [end for end in ends if end < max(ends)]]))
    devices: dict[tuple[str, str], dict[str, Any]] = {}
    series: list[dict[str, Any]] = []
    columns: dict[str, Floats] = {}
    spans: list[Span] = []
    events: list[dict[str, Any]] = []
    for number, (part, shift, machine) in enumerate(zip(recordings, shifts, names, strict=True)):
        prefix = f"{machine}:" if several else ""
        rank = part.header["rank"]
        whose = f"{prefix}rank{number if rank is None else rank}:"
        owners = {owner: whose + owner for owner in ("process", "sampler")}
        for device in part.devices:
            identity = (machine, device.get("uuid") or device["name"])
            if identity not in devices:
                name = owners[device["name"]] = prefix + device["name"]
                devices[identity] = device | {"name": name}
                devices[identity] |= {"machine": machine} if several else {}
        values = _values(part, times - shift, part.end if part.end + shift < max(ends) else HUGE)
        places: dict[int, int] = {}
        for index, entry in enumerate(part.header["series"]):
            owner, _, quantity = entry["key"].partition("/")
            if owner in owners:
                key = f"{owners[owner]}/{quantity}"
                places[index] = len(series)
                series.append({**entry, "key": key})
                columns[key] = values[:, index]
        own = {} if rank is None else {"rank": rank}
        spans += [
            replace(
                span,
                start=span.start + shift,
                end=span.end + shift,
                process=f"{machine}:{span.process}",
                attributes=own | span.attributes,
            )
            for span in part.spans
        ]
        for event in part.events:
            moved = {**event, "t": event["t"] + shift, "trace": str(part.prefix)}
            if "series" in event:
                moved["series"] = [places[i] for i in event["series"] if i in places]
            if "device" in event:
                moved["device"] = prefix + event["device"]
            events.append(moved)
    headers = [part.header for part in recordings]
    working = [header["nvml"] for header in headers if header["nvml"].get("available")]
    watching = [header["nvml"] for header in headers if header["devices"]]
    header = {
        **min(headers, key=lambda header: float(header["start (unix s)"])),
        "host": ", ".join(dict.fromkeys(names)),
        "rank": None,
        "nvml": [*working, *watching, headers[0]["nvml"]][0],
        "clocks": sentences,
        "interval (s)": max(header["interval (s)"] for header in headers),
        "thinned": max(header.get("thinned", 1) for header in headers),
        # The host lanes come last, as in a trace of one machine.
        "devices": sorted(devices.values(), key=lambda device: device["kind"] == "host"),
        "series": series,
    }
    return Recording(
        recordings[0].prefix,
        header,
        pd.DataFrame(columns, index=pd.Index(times, name="time (s)")),
        sorted(events, key=lambda event: event["t"]),
        sorted(spans, key=lambda span: (span.start, span.depth)),
        max(ends),
        sum(part.damaged for part in recordings),
    )


def _machine_names(recordings: Sequence[Recording]) -> list[str]:
    """Each trace's machine, distinguished by boot, so two containers of one name stay two."""
    found: dict[tuple[str, Any], str] = {}
    machines = [(part.header["host"], part.header["boot"]) for part in recordings]
    for machine in dict.fromkeys(machines):
        same = sum(known[0] == machine[0] for known in found)
        found[machine] = f"{machine[0]}#{same + 1}" if same else machine[0]
    return [found[machine] for machine in machines]


def _shifts(recordings: Sequence[Recording], names: Sequence[str]) -> tuple[list[float], list[str]]:
    """Seconds to add to each trace's times, and what is to be said of the machines' clocks."""
    headers = [part.header for part in recordings]
    boots = [header["boot"] or number for number, header in enumerate(headers)]
    first = {boot: boots.index(boot) for boot in boots}
    offsets: dict[Any, dict[str, Any]] = {}
    for boot, header in zip(boots, headers, strict=True):
        if "clock offset" in header:
            offsets.setdefault(boot, header["clock offset"])
    starts, sentences = [], []
    for number, (boot, header) in enumerate(zip(boots, headers, strict=True)):
        reference, began = first[boot], header["start (monotonic s)"]
        offset = offsets.get(boot)
        if offset is not None and offset["boot"] in first:
            reference, began = first[offset["boot"]], began - offset["ahead (s)"]
        zero = headers[reference]
        starts.append(zero["start (unix s)"] + began - zero["start (monotonic s)"])
        if number != first[boot]:
            continue
        if offset is not None and reference != number:
            wall, within = offset["wall (s)"], offset["within (s)"]
            sentences.append(
                f"The clock of {names[number]} was {abs(wall):.6f} s "
                f"{'ahead of' if wall >= 0 else 'behind'} that of {names[reference]}, within "
                f"{within:.6f} s, measured during the run, and is corrected."
            )
        elif number and not any(each["boot"] == boot for each in offsets.values()):
            sentences.append(
                f"The clock offset between {names[number]} and {names[0]} is not known: the traces "
                "are aligned by wall time."
            )
    return [start - min(starts) for start in starts], sentences


def _values(part: Recording, moments: Floats, end: float) -> Floats:
    """What held at each moment; NaN before the recording's start and from its end on."""
    # A hair of tolerance: adding and taking off a shift does not give back the same last bit.
    places = np.searchsorted(part.times, moments + 1e-9, "right") - 1
    values = np.vstack([part.frame.to_numpy(), np.full(len(part.keys), np.nan)])
    return values[np.where((places < 0) | (moments > end - 1e-9), -1, places)]
