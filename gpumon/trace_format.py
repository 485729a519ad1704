"""This module decodes the lines of a trace file, which may have been cut off at any byte.

A line that is not valid is damaged: it is left out, and counted. Without a valid header there is
nothing to read, so that is a MonitorError.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpumon.errors import MonitorError, printable

FORMAT = 1
VERSION = "0.2.0"
"""The version of gpumon, which each trace says."""
READING = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
LONGEST_LINE = 16 * 2**20
MOST_SERIES = 10_000
MOST_LEVELS = 20
MOST_VALUES = 20_000_000
"""The most values that a trace keeps: 160 MB once they are read."""
HUGE = 1e15
"""No time and no value of a trace comes near it."""
LONGEST = 3
"""Sampling intervals for which a value stands."""
LATE = 1.05
"""Samples come a little late, which alone must not make a gap."""


_JSON = json.JSONDecoder(parse_constant=lambda _: None)


DAMAGED = object()


class Damaged(Exception):
    """A line that is not JSON, or not the JSON that it should be."""


def parse(line: bytes) -> Any:
    """The value of a line, with NaN and infinities null and texts printable; or Damaged."""
    try:
        value = _JSON.decode(line.decode())
    except (ValueError, RecursionError) as error:
        raise Damaged from error
    sample = isinstance(value, list) and value and is_number(value[0])
    return value if sample else _plain(value, MOST_LEVELS)


def _plain(value: Any, levels: int) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, (list, dict)) and not levels:
        raise Damaged
    if isinstance(value, list):
        return [_plain(item, levels - 1) for item in value]
    if isinstance(value, dict):
        return {printable(key): _plain(item, levels - 1) for key, item in value.items()}
    return value


def parse_lines(path: Path) -> Iterator[Any]:
    """Every whole line of a file, parsed, and ``DAMAGED`` for one that is; none where no file is.

    A last line without its end is being written, or was cut off by a kill, and is no damage.
    """
    try:
        # Do not wait for a pipe that no process writes to.
        with os.fdopen(os.open(path, READING), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise MonitorError(f"{path} is not a file that could hold a trace")
            while line := file.readline(LONGEST_LINE):
                if len(line) == LONGEST_LINE:
                    raise MonitorError(f"{path} is not a gpumon trace: one of its lines has no end")
                try:
                    if line.strip():
                        yield parse(line)
                except Damaged:
                    if line.endswith(b"\n"):
                        yield DAMAGED
    except FileNotFoundError:
        pass
    except OSError as error:
        raise MonitorError(f"cannot read the trace {path}: {error.strerror}") from error


def is_number(value: Any, least: float = -HUGE, most: float = HUGE) -> bool:
    """Whether a value is a finite number between the limits."""
    return (
        isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most
    )


def is_count(value: Any) -> bool:
    return isinstance(value, int) and is_number(value, 0)


HEADER = {
    **dict.fromkeys(("version", "host", "system", "clock"), str),
    "nvml": dict,
    "devices": list,
    "series": list,
}
"""Fields of a header and their types; it also has the interval and the start by both clocks."""
AMOUNTS = ("memory total (MiB)", "power limit (W)", "cores")
"""Numbers that a device may have."""
EVENTS: dict[str, tuple[str, type]] = {
    "failed": ("series", list),
    "back": ("series", list),
    "device lost": ("device", str),
    "shared": ("device", str),
    "gap": ("reason", str),
}
"""The field that an event has in addition to its time, and its type."""


def gap_threshold(interval: float) -> float:
    """Seconds between two samples that are no gap yet."""
    return LONGEST * LATE * interval


def check_header(header: dict[str, Any], path: Path) -> None:
    """Raise MonitorError for a header that this version cannot go by."""
    version = header["gpumon"]
    if is_number(version) and version > FORMAT:
        raise MonitorError(
            f"{path} has trace format {version}, this gpumon reads up to {FORMAT}: update gpumon"
        )
    if wrong := _header_error(header):
        raise MonitorError(f"{path} is damaged, or not a gpumon trace: {wrong}")


def _header_error(header: dict[str, Any]) -> str | None:
    """What is wrong with a header; None if nothing is."""
    for name, kind in HEADER.items():
        if not isinstance(header.get(name), kind):
            return f"its header has no {name}"
    if not is_number(header.get("interval (s)"), 1e-4, 1e6):
        return "its header has no interval"
    if not all(is_number(header.get(f"start ({clock} s)")) for clock in ("monotonic", "unix")):
        return "its header has no start"
    if len(header["series"]) > MOST_SERIES:
        return f"its header lists more than {MOST_SERIES} series"
    for name, listed in (("name", header["devices"]), ("key", header["series"])):
        texts = [entry.get(name) for entry in listed if isinstance(entry, dict)]
        if len(texts) < len(listed) or not all(isinstance(text, str) for text in texts):
            return f"its header lists something without a {name}"
    for device in header["devices"]:
        for name in AMOUNTS:
            if device.get(name) is not None and not is_number(device[name]):
                return f"a device's {name} is no number"
    return None


def is_sample(line: Any, series: int) -> bool:
    """Whether a line is ``[t, index, value, ...]`` with indices below ``series``.

    Spelt out, because a trace has many of them; JSON makes these very types.
    """
    if type(line) is not list or len(line) % 2 == 0 or not is_number(line[0], 0):
        return False
    for place in line[1::2]:
        if type(place) is not int or not 0 <= place < series:
            return False
    for value in line[2::2]:
        known = value is not None
        if known and (type(value) not in (int, float) or not -HUGE <= value <= HUGE):
            return False
    return True


def is_event(line: Any) -> bool:
    is_timed = isinstance(line, dict) and is_number(line.get("t"), 0)
    if not is_timed or not isinstance(line.get("event"), str):
        return False
    name, kind = EVENTS.get(line["event"], ("t", object))
    return isinstance(line.get(name), kind)


def is_mark(line: Any) -> bool:
    """Whether a line opens (``["B", ns, pid, number, name, {...}]``) or closes a phase."""
    if not isinstance(line, list) or len(line) not in (4, 6):
        return False
    kind, moment, process, place, *opening = line
    if not (is_number(moment, 0, 1e9 * HUGE) and is_count(process) and is_count(place)):
        return False
    if kind == "E":
        return not opening
    named = bool(opening) and isinstance(opening[0], str) and opening[0] != ""
    return kind == "B" and named and isinstance(opening[1], dict)
