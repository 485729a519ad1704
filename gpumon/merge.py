"""Several traces as one: ranks of one machine, or machines, on one time axis.

Traces of one boot share the monotonic clock and are laid on each other exactly; those of
different machines meet on wall time, as well as their clocks agree. A GPU or a host that several
ranks of one machine have recorded is taken once, from the first.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpumon.recording import NAN, Mark, Recording


def merge(recordings: Sequence[Recording]) -> Recording:
    """One recording whose zero is the earliest start among them."""
    if len(recordings) == 1:
        return recordings[0]
    names = _machine_names(recordings)
    several = len(set(names)) > 1
    shifts = _shifts(recordings)
    ends = [part.end + shift for part, shift in zip(recordings, shifts, strict=True)]
    end = max(ends)
    # Where one ends before the others is a moment too: from there on its values are unknown.
    moments = {moment for moment in ends if moment < end}
    for part, shift in zip(recordings, shifts, strict=True):
        moments.update(moment + shift for moment in part.times)
    times = array("d", sorted(moments))
    devices: list[dict[str, Any]] = []
    series: list[dict[str, Any]] = []
    columns: list[array[float]] = []
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
        held = _held(part, [moment - shift for moment in times], end - shift)
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
            column = part.columns[index]
            columns.append(array("d", [NAN if at is None else column[at] for at in held]))
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
        _header(recordings, names, devices, series),
        times,
        columns,
        sorted(events, key=lambda event: event["t"]),
        sorted(marks, key=lambda mark: (mark.start, mark.depth)),
        end,
        sum(part.damaged for part in recordings),
        max(part.step for part in recordings),
    )


def _machine_names(recordings: Sequence[Recording]) -> list[str]:
    """Each trace's machine, told apart by boot, so two containers of one name stay two."""
    found: dict[tuple[str, Any], str] = {}
    for part in recordings:
        host, boot = part.header["host"], part.header["boot"]
        if (host, boot) not in found:
            same = sum(known[0] == host for known in found)
            found[host, boot] = host if not same else f"{host}#{same + 1}"
    return [found[part.header["host"], part.header["boot"]] for part in recordings]


def _shifts(recordings: Sequence[Recording]) -> list[float]:
    """Seconds to add to each trace's times."""
    headers = [part.header for part in recordings]
    first: dict[Any, dict[str, Any]] = {}
    starts = []
    for header in headers:
        reference = first.setdefault(header["boot"], header) if header["boot"] else header
        since = header["start (monotonic s)"] - reference["start (monotonic s)"]
        starts.append(reference["start (unix s)"] + since)
    return [start - min(starts) for start in starts]


def _held(part: Recording, moments: Sequence[float], end: float) -> list[int | None]:
    """The place of the sample that held at each moment; None before its start and after its end."""
    found: list[int | None] = []
    for moment in moments:
        # A hair of tolerance: adding and taking off a shift does not give back the same last bit.
        place = bisect_right(part.times, moment + 1e-9) - 1
        over = place < 0 or (moment > part.end - 1e-9 and part.end < end)
        found.append(None if over else place)
    return found


def _header(
    recordings: Sequence[Recording],
    names: Sequence[str],
    devices: list[dict[str, Any]],
    series: list[dict[str, Any]],
) -> dict[str, Any]:
    headers = [part.header for part in recordings]
    working = [header["nvml"] for header in headers if header["nvml"].get("available")]
    first = min(headers, key=lambda header: float(header["start (unix s)"]))
    return {
        **first,
        "host": ", ".join(dict.fromkeys(names)),
        "rank": None,
        "nvml": working[0] if working else headers[0]["nvml"],
        "clock": f"{len(headers)} traces; monotonic within a machine, wall time between machines",
        "interval (s)": max(header["interval (s)"] for header in headers),
        "devices": devices,
        "series": series,
    }
