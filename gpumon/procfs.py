"""Small files of Linux that are read again and again, mostly of /proc."""

from __future__ import annotations

import os
from collections.abc import Callable

TICK = 1 / os.sysconf("SC_CLK_TCK")
"""Seconds."""
MOST = 65536


def slurp(path: str) -> bytes:
    """A small file, read at once."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, MOST)
    finally:
        os.close(file)


def kept(path: str) -> Callable[[], bytes]:
    """A small file that stays open; each call reads what it holds then, from its start."""
    file = os.open(path, os.O_RDONLY)
    return lambda: os.pread(file, MOST, 0)


def busy_and_total(line: bytes) -> tuple[float, float]:
    """Seconds that a line ``cpu...`` of /proc/stat counts; waiting for a disk is idle."""
    # user, nice, system, idle, iowait, irq, softirq, steal; guests are in user.
    counts = [int(ticks) for ticks in line.split()[1:9]]
    total = sum(counts)
    return (total - counts[3] - counts[4]) * TICK, total * TICK
