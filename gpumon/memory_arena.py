"""One memory block holds all values that the driver fills, and is unpacked at once.

Between two samples everything leaves the processor's caches, and a sample costs what it touches:
one ``unpack`` touches less than an object for each number.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

MEMORY = bytearray(2**24)
"""What of it is never used is never there: 56 MIG instances need a quarter."""
CODES = {ctypes.c_uint: "I", ctypes.c_int: "i", ctypes.c_ulonglong: "Q", ctypes.c_double: "d"}
ALIGNED = 8

_taken = [0]
_START = ctypes.addressof(ctypes.c_char.from_buffer(MEMORY))


def allocate(kind: Any, **fields: Any) -> Any:
    """A number or a structure in that memory, zero but for these fields.

    Raises:
        ValueError: there is no room left.
    """
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
