"""A series is one measured quantity with its unit; a source reads one or several series.

Kept light, because the sampling process loads it. One memory block holds all values that the driver
fills, and is unpacked at once: between two samples everything leaves the processor's caches, and a
sample costs what it touches. One ``unpack`` touches less than an object for each number.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Any

MEMORY = bytearray(2**24)
"""What of it is never used is never there."""
CODES = {ctypes.c_uint: "I", ctypes.c_int: "i", ctypes.c_ulonglong: "Q", ctypes.c_double: "d"}
ALIGNED = 8
_taken = [0]
_START = ctypes.addressof(ctypes.c_char.from_buffer(MEMORY))


class Unavailable(Exception):
    """A series cannot be read; the message is the reason that the trace keeps.

    permanent: asking again is pointless (not supported, function missing in this driver).
    lost: the whole device is gone. wrong_request: the user asked for what is not there.
    code: NVML's own number of the error.
    """

    def __init__(
        self,
        reason: str,
        *,
        permanent: bool = False,
        lost: bool = False,
        wrong_request: bool = False,
        code: int | None = None,
    ) -> None:
        super().__init__(reason)
        self.permanent = permanent
        self.lost = lost
        self.wrong_request = wrong_request
        self.code = code


@dataclass
class Series:
    """One column of the trace: key such as ``gpu0/power (W)`` and how it is read.

    cadence: seconds between two values of the driver itself, where known; asking faster than
    that repeats the same value.
    """

    key: str
    api: str
    digits: int = 0
    reason: str | None = None
    cadence: float | None = None


@dataclass
class Number:
    """What calls fill: the value in ``storage``, less that of the start, in units of so many.

    start: None for a counter whose first reading is its start. code: what must be 0 where the
    number has its own error code.
    """

    storage: Any
    unit: float = 1
    start: float | None = 0
    code: Any = None


Call = tuple[Callable[..., int], tuple[Any, ...]]
"""A function that gives 0, or the code of an error, and its arguments."""


@dataclass
class Poll:
    """Calls that fill numbers; made often, so nothing is made for them anew.

    failure: what a code other than 0 means. alternate: what the next reading is, where readings
    take turns.
    """

    calls: list[Call]
    numbers: list[Number]
    failure: Callable[[int], Unavailable]
    alternate: Poll | None = None

    @property
    def ready(self) -> bool:
        """Whether the start of each counter is known."""
        return all(number.start is not None for number in self.numbers)

    def read(self) -> list[float | Unavailable]:
        self.make()
        return self.filled()

    def make(self) -> None:
        """Make the calls; Unavailable for the first that fails."""
        for function, arguments in self.calls:
            if code := function(*arguments):
                raise self.failure(code)

    def filled(self) -> list[float | Unavailable]:
        """What the calls filled; Unavailable for a number that failed, and raised if all did."""
        values: list[float | Unavailable] = []
        for number in self.numbers:
            if number.code is not None and number.code.value:
                values.append(self.failure(number.code.value))
                continue
            if number.start is None:
                number.start = number.storage.value
            values.append((number.storage.value - number.start) / number.unit)
        failed = [value for value in values if isinstance(value, Unavailable)]
        if len(failed) == len(values) > 0:
            raise failed[0]
        return values


Read = Callable[[], Sequence["float | Unavailable | None"]]
"""Gives values, in their series' order."""


@dataclass
class Source:
    """What gives the values of one or several series, in their order.

    A value may be None (nothing to say yet) or an Unavailable (this one failed, the others not).
    every: seconds between two readings, 0 for each sample. device: the name before the slash.
    poll: the calls, where reading is no more than these.
    pending_events: name and details of what a reading came upon, until the sampler writes them.
    """

    device: str
    series: list[Series]
    read: Read
    every: float = 0.0
    dead: bool = False
    poll: Poll | None = None
    pending_events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def describe(self) -> list[dict[str, Any]]:
        return [
            {"key": s.key, "api": s.api, "every (s)": self.every, "reason": s.reason}
            | ({"driver cadence (s)": s.cadence} if s.cadence else {})
            for s in self.series
        ]


def allocate(kind: Any, **fields: Any) -> Any:
    """A number or a structure in that memory, zero but for these fields."""
    made = kind.from_buffer(MEMORY, _taken[0])
    _taken[0] += -(-ctypes.sizeof(kind) // ALIGNED) * ALIGNED
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def offset_of(cell: Any) -> int:
    """A number's place in that memory."""
    return ctypes.addressof(cell) - _START


def as_argument(value: Any) -> Any:
    """What a call is given, such that it need not be looked up what a pointer points at."""
    if not isinstance(value, ctypes._Pointer):
        return value
    return ctypes.c_void_p.from_param(ctypes.cast(value, ctypes.c_void_p).value)


def unpacker(cells: Sequence[Any]) -> Callable[[bytearray], tuple[Any, ...]]:
    """What takes the values of these numbers out of that memory; they come in its order."""
    layout, end = "=", 0
    for cell in cells:
        layout += f"{offset_of(cell) - end}x{CODES[type(cell)]}"
        end = offset_of(cell) + ctypes.sizeof(cell)
    return Struct(layout).unpack_from
