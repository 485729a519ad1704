"""Words and numbers for people: units, tables, and what recorded events mean."""

from __future__ import annotations

import math
from typing import Any

REASONS = {
    0x001: "idle",
    0x002: "application clocks",
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "thermal slowdown (software)",
    0x040: "thermal slowdown (hardware)",
    0x080: "power brake",
    0x100: "display clocks",
}
# Those that slow down work that is there to do, which an idle GPU's low clock does not.
THROTTLING = 0x004 | 0x008 | 0x020 | 0x040 | 0x080
Row = dict[str, Any]
"""Values by the name of their column; what is not known is NaN, None or not there."""


def time_text(seconds: float, span: float) -> str:
    """A moment of a span, in the form that the span asks for: ``12.5 s``, ``3:05``, ``1:02:30``."""
    if span <= 120:
        return f"{round(seconds, 6):g} s"
    if seconds < 0:
        return "-" + time_text(-seconds, span)
    minutes, left = divmod(round(seconds), 60)
    if span <= 3600 and minutes < 60:
        return f"{minutes}:{left:02d}"
    return f"{minutes // 60}:{minutes % 60:02d}:{left:02d}"


def duration_text(seconds: float) -> str:
    """A length of time in the same forms; below a second two digits count."""
    digits = 1 if seconds >= 1 or not seconds else 1 - math.floor(math.log10(seconds))
    return time_text(round(seconds, digits), seconds)


def memory_text(amount: float) -> str:
    """Memory for people: ``812 MiB``, ``12.3 GiB``, ``141 GiB``."""
    if amount < 1000:
        return f"{amount:.0f} MiB"
    gib = amount / 1024
    return f"{gib:.1f} GiB" if gib < 100 else f"{gib:.0f} GiB"


def reasons(bits: float) -> list[str]:
    """The names of a bit mask, such as ``["power cap"]``; unknown bits by their number."""
    mask = int(bits)
    known = [name for bit, name in REASONS.items() if mask & bit]
    rest = mask & ~sum(REASONS)
    return known + ([hex(rest)] if rest else [])


def gpu_name(device: str) -> str:
    """A device's name for people: ``GPU 0``."""
    return device.rpartition(":")[2].replace("gpu", "GPU ", 1)


def qualified_gpu_name(device: str) -> str:
    """The same with the machine's name, which a merged trace has: ``GPU 0 of node1``."""
    machine, _, _ = device.rpartition(":")
    return gpu_name(device) + (f" of {machine}" if machine else "")


def process_label(event: dict[str, Any]) -> str:
    """A process of another program: ``python (4321, 812 MiB)``."""
    memory = event.get("memory (MiB)")
    size = "" if memory is None else f", {memory_text(memory)}"
    return f"{event.get('name') or 'a process'} ({event['process']}{size})"


def sharing_warning(event: dict[str, Any]) -> str:
    who = f"{gpu_name(event['device'])} is shared with {process_label(event)}"
    return f"{who}: its numbers are not the program's alone"
