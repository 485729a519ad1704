"""This module formats durations, memory sizes and core counts as text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


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


def cores_text(host: Mapping[str, Any]) -> str:
    """``1 core``, ``64 cores``."""
    return f"{host['cores']} core{'s' * (host['cores'] != 1)}"
