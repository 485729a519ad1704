"""Moments and amounts of memory, as people read them."""

from __future__ import annotations


def clock(seconds: float, span: float) -> str:
    """A moment on the time axis, as long as the span asks: ``12 s``, ``3:05``, ``1:02:30``."""
    if span <= 120:
        return f"{round(seconds, 6):g} s"
    if seconds < 0:
        return "-" + clock(-seconds, span)
    minutes, left = divmod(round(seconds), 60)
    if span <= 3600 and minutes < 60:
        return f"{minutes}:{left:02d}"
    return f"{minutes // 60}:{minutes % 60:02d}:{left:02d}"


def mebibytes(amount: float) -> str:
    """Memory for people: ``812 MiB``, ``12.3 GiB``, ``141 GiB``."""
    if amount < 1000:
        return f"{amount:.0f} MiB"
    gib = amount / 1024
    return f"{gib:.1f} GiB" if gib < 100 else f"{gib:.0f} GiB"
