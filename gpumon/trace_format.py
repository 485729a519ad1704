"""This module checks each line of a trace file, because traces may be damaged or untrusted.

A trace may come from anyone and may have been cut off at any byte. A line that is not valid is
damaged: it is left out, and counted. A header that is not what it should be leaves nothing
to read, so it is a MonitorError.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gpumon.errors import MonitorError, printable

FORMAT = 1
VERSION = "0.1.0"
"""The version of gpumon, which each trace says."""
READING = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
LONGEST_LINE = 16 * 2**20
MOST_SERIES = 10_000
MOST_LEVELS = 20
MOST_VALUES = 20_000_000
"""That a trace has: 160 MB once it is read."""
HUGE = 1e15
"""No time and no value of a trace comes near it."""


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


def is_count(value: Any, most: float = HUGE) -> bool:
    return isinstance(value, int) and is_number(value, 0, most)


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def optional(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """The check of a value that may be unknown (null, or not there at all)."""
    return lambda value: value is None or check(value)


class Field(NamedTuple):
    check: Callable[[Any], bool]
    expected: str


TEXT, OPTIONAL_TEXT = Field(is_text, "text"), Field(optional(is_text), "text")
AMOUNT = Field(optional(lambda value: is_number(value, 0)), "amount")
MOMENT = Field(is_number, "moment in seconds")

HEADER = {
    "version": TEXT,
    "host": TEXT,
    "system": TEXT,
    "clock": TEXT,
    "boot": OPTIONAL_TEXT,
    "rank": Field(optional(is_count), "rank"),
    "interval (s)": Field(lambda value: is_number(value, 1e-4, 1e6), "interval in seconds"),
    "start (monotonic s)": MOMENT,
    "start (unix s)": MOMENT,
    "nvml": Field(lambda value: isinstance(value, dict), "object"),
    "devices": Field(lambda value: isinstance(value, list), "list"),
    "series": Field(lambda value: isinstance(value, list), "list"),
}
NVML = {"reason": OPTIONAL_TEXT}
DEVICE = {
    "name": TEXT,
    "kind": Field(lambda value: value in ("gpu", "host"), "kind of device"),
    "uuid": OPTIONAL_TEXT,
    "memory total (MiB)": AMOUNT,
}
GPU = DEVICE | {
    "product": TEXT,
    "cuda": Field(optional(is_count), "number of a device"),
    "power limit (W)": AMOUNT,
}
HOST = DEVICE | {"cores": Field(lambda value: is_count(value, 1e6), "number of cores")}
SERIES = {
    "key": Field(lambda value: is_text(value) and "/" in value, "key"),
    "reason": OPTIONAL_TEXT,
}

EVENTS = {
    "failed": {"series": Field(lambda value: isinstance(value, list), "list"), "reason": TEXT},
    "back": {"series": Field(lambda value: isinstance(value, list), "list")},
    "device lost": {"device": TEXT, "reason": TEXT},
    "gap": {"reason": TEXT},
    "shared": {
        "device": TEXT,
        "process": Field(is_count, "process"),
        "name": OPTIONAL_TEXT,
        "memory (MiB)": AMOUNT,
    },
    "end": {"why": TEXT, "sampler cpu (s)": AMOUNT, "sampler memory (MiB)": AMOUNT},
}


def first_error(found: Any, fields: dict[str, Field], where: str = "") -> str | None:
    """What is wrong with an object, as ``'interval (s)' is no interval``; None if nothing is."""
    if not isinstance(found, dict):
        return f"{where}is no object"
    for name, field in fields.items():
        if not field.check(found.get(name)):
            return f"{where}{name!r} is no {field.expected}"
    return None


def check_header(header: dict[str, Any], path: Path) -> None:
    """Raise MonitorError for a header that this version cannot go by."""
    version = header["gpumon"]
    if is_number(version) and version > FORMAT:
        raise MonitorError(
            f"{path} has trace format {version}, this gpumon reads up to {FORMAT}: update gpumon"
        )
    wrong = (
        _header_error(header) if is_count(version) and version else "'gpumon' is no trace format"
    )
    if wrong:
        raise MonitorError(f"{path} is damaged, or not a gpumon trace: in its header {wrong}")


def _header_error(header: dict[str, Any]) -> str | None:
    wrong = first_error(header, HEADER) or first_error(header["nvml"], NVML, "nvml: ")
    if wrong:
        return wrong
    if len(header["series"]) > MOST_SERIES:
        return f"'series' lists more than {MOST_SERIES}"
    for place, device in enumerate(header["devices"]):
        wrong = first_error(device, DEVICE, f"devices[{place}]: ")
        wrong = wrong or first_error(
            device, HOST if device["kind"] == "host" else GPU, f"devices[{place}]: "
        )
        if wrong:
            return wrong
    for place, series in enumerate(header["series"]):
        if wrong := first_error(series, SERIES, f"series[{place}]: "):
            return wrong
    for name, listed in (("name", header["devices"]), ("key", header["series"])):
        if len({entry[name] for entry in listed}) < len(listed):
            return f"a {name} comes twice"
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


def is_event(line: Any, series: int) -> bool:
    if not isinstance(line, dict) or not is_number(line.get("t"), 0):
        return False
    name = line.get("event")
    if not isinstance(name, str) or first_error(line, EVENTS.get(name, {})):
        return False
    return all(is_count(place, series - 1) for place in line.get("series", []))


def is_mark(line: Any) -> bool:
    """Whether a line opens (``["B", ns, pid, number, name, {...}]``) or closes a phase."""
    if not isinstance(line, list) or len(line) not in (4, 6):
        return False
    kind, moment, process, place, *opening = line
    if not (is_number(moment, 0, 1e9 * HUGE) and is_count(process) and is_count(place)):
        return False
    if kind == "E":
        return not opening
    named = bool(opening) and is_text(opening[0]) and opening[0] != ""
    return kind == "B" and named and isinstance(opening[1], dict)


def is_clock_offset(found: Any) -> bool:
    """Whether a value from a trace is a valid clock offset; see :mod:`gpumon.clocks`."""
    return (
        isinstance(found, dict)
        and isinstance(found.get("boot"), str)
        and all(is_number(found.get(key)) for key in ("ahead (s)", "wall (s)"))
        and is_number(found.get("within (s)"), 0)
    )
