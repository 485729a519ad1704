"""This module merges traces of several ranks or hosts on one time axis.

Traces of one boot share the monotonic clock and are laid on each other exactly. Those of different
machines are aligned by their clock offset, where one was measured (:mod:`gpumon.clocks`),
else by wall time, as well as their clocks agree; the merged trace says which. A GPU or a
host that several ranks of one machine have recorded is taken once, from the first. A recording that
is in two of the traces is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpumon import clocks
from gpumon.errors import MonitorError
from gpumon.recording import NAN, Mark, Recording
from gpumon.stats import Floats


def merge(recordings: Sequence[Recording]) -> Recording:
    """One recording whose zero is the earliest start among them.

    Raises MonitorError where a recording would count twice.
    """
    if len(recordings) == 1:
        return recordings[0]
    _refuse_copies(recordings)
    names = _machine_names(recordings)
    several = len(set(names)) > 1
    shifts, sentences = _shifts(recordings, names)
    ends = [part.end + shift for part, shift in zip(recordings, shifts, strict=True)]
    end = max(ends)
    # Where one ends before the others is a moment too: from there on its values are unknown.
    moments = [part.times + shift for part, shift in zip(recordings, shifts, strict=True)]
    times = np.unique(np.concatenate([*moments, [moment for moment in ends if moment < end]]))
    devices: list[dict[str, Any]] = []
    series: list[dict[str, Any]] = []
    columns: dict[str, Floats] = {}
    marks: list[Mark] = []
    events: list[dict[str, Any]] = []
    taken: set[tuple[str, str]] = set()
    for number, (part, shift, machine) in enumerate(zip(recordings, shifts, names, strict=True)):
        prefix = f"{machine}:" if several else ""
        rank = part.header["rank"]
        rank_name = f"rank{rank if rank is not None else number}:"
        fresh = {}
        for device in part.devices:
            identity = (machine, device.get("uuid") or device["name"])
            if identity not in taken:
                taken.add(identity)
                fresh[device["name"]] = prefix + device["name"]
                where = {"machine": machine} if several else {}
                devices.append({**device, "name": prefix + device["name"], **where})
        values = _values(part, times - shift, end - shift)
        places: dict[int, int] = {}
        for index, entry in enumerate(part.header["series"]):
            owner, _, quantity = entry["key"].partition("/")
            if owner in fresh:
                key = f"{fresh[owner]}/{quantity}"
            elif owner in ("process", "sampler"):
                key = f"{prefix}{rank_name}{owner}/{quantity}"
            else:
                continue
            places[index] = len(series)
            series.append({**entry, "key": key})
            columns[key] = values[:, index]
        for mark in part.marks:
            own = {} if rank is None or "rank" in mark.attributes else {"rank": rank}
            marks.append(
                replace(
                    mark,
                    start=mark.start + shift,
                    end=mark.end + shift,
                    process=f"{machine}:{mark.process}",
                    attributes={**mark.attributes, **own},
                )
            )
        for event in part.events:
            moved = {**event, "t": event["t"] + shift, "trace": str(part.prefix)}
            if "series" in event:
                moved["series"] = [places[i] for i in event["series"] if i in places]
            if "device" in event:
                moved["device"] = prefix + event["device"]
            events.append(moved)
    # The host lanes come last, as in a trace of one machine.
    devices.sort(key=lambda device: device["kind"] == "host")
    return Recording(
        recordings[0].prefix,
        _header(recordings, names, devices, series) | {"clocks": sentences},
        pd.DataFrame(columns, index=pd.Index(times, name="time (s)")),
        sorted(events, key=lambda event: event["t"]),
        sorted(marks, key=lambda mark: (mark.start, mark.depth)),
        end,
        sum(part.damaged for part in recordings),
    )


def _refuse_copies(recordings: Sequence[Recording]) -> None:
    """Raise MonitorError if two of the traces hold the same recording, as a copy does."""
    found: dict[tuple[str, float, Any], Path] = {}
    for part in recordings:
        header = part.header
        boot, start = header["boot"] or header["host"], header["start (monotonic s)"]
        first = found.setdefault((boot, start, header.get("sampler")), part.prefix)
        if first != part.prefix:
            raise MonitorError(
                f"{first} and {part.prefix} hold the same recording, which would count twice: "
                "leave one out"
            )


def _machine_names(recordings: Sequence[Recording]) -> list[str]:
    """Each trace's machine, distinguished by boot, so two containers of one name stay two."""
    found: dict[tuple[str, Any], str] = {}
    for part in recordings:
        host, boot = part.header["host"], part.header["boot"]
        if (host, boot) not in found:
            same = sum(known[0] == host for known in found)
            found[host, boot] = host if not same else f"{host}#{same + 1}"
    return [found[part.header["host"], part.header["boot"]] for part in recordings]


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
            sentences.append(clocks.offset_sentence(offset, names[number], names[reference]))
        elif number and not any(each["boot"] == boot for each in offsets.values()):
            sentences.append(
                f"The clock offset between {names[number]} and {names[0]} is not known: the traces "
                "are aligned by wall time."
            )
    return [start - min(starts) for start in starts], sentences


def _values(part: Recording, moments: Floats, end: float) -> Floats:
    """What held at each moment; NaN before the recording's start and after its end."""
    # A hair of tolerance: adding and taking off a shift does not give back the same last bit.
    places = np.searchsorted(part.times, moments + 1e-9, "right") - 1
    over = (places < 0) | ((moments > part.end - 1e-9) & (part.end < end))
    values = np.vstack([part.frame.to_numpy(), np.full(len(part.keys), NAN)])
    return values[np.where(over, -1, places)]


def _header(
    recordings: Sequence[Recording],
    names: Sequence[str],
    devices: list[dict[str, Any]],
    series: list[dict[str, Any]],
) -> dict[str, Any]:
    headers = [part.header for part in recordings]
    working = [header["nvml"] for header in headers if header["nvml"].get("available")]
    watching = [header for header in headers if header["devices"]] or headers
    first = min(headers, key=lambda header: float(header["start (unix s)"]))
    return {
        **first,
        "host": ", ".join(dict.fromkeys(names)),
        "rank": None,
        "nvml": working[0] if working else watching[0]["nvml"],
        "clock": f"{len(headers)} traces; monotonic within a machine, and between machines whose "
        "clocks' difference was measured; else wall time",
        "interval (s)": max(header["interval (s)"] for header in headers),
        "thinned": max(header.get("thinned", 1) for header in headers),
        "devices": devices,
        "series": series,
    }
