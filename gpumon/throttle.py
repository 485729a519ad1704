"""This module decodes the reasons that NVML gives for throttled clocks."""

from __future__ import annotations

import math

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


def is_throttled(bits: float) -> bool:
    """Whether a bit mask holds one of those; what is not known, NaN, does not."""
    return not math.isnan(bits) and int(bits) & THROTTLING > 0


def reasons(bits: float) -> list[str]:
    """The names of a bit mask, such as ``["power cap"]``; unknown bits by their number."""
    mask = int(bits)
    known = [name for bit, name in REASONS.items() if mask & bit]
    rest = mask & ~sum(REASONS)
    return known + ([hex(rest)] if rest else [])
