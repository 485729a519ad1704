"""This module reads CPU, memory, disk and network counters of a Linux host from /proc."""

from __future__ import annotations

import functools
import os
from contextlib import suppress

TICK = 1 / os.sysconf("SC_CLK_TCK")
"""Seconds."""
SECTOR = 512
"""Bytes, whatever the disk's own sectors are."""
BLOCK = 65536

STAT, AMOUNTS = "/proc/stat", "/proc/meminfo"
MEMORY = f"{AMOUNTS}, MemTotal less MemAvailable"
DISKS, CARDS = "/proc/diskstats", "/proc/net/dev"


def slurp(path: str) -> bytes:
    """A small file, read at once."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, BLOCK)
    finally:
        os.close(file)


@functools.cache
def _kept(path: str) -> int:
    """A file that stays open, to be read from its start again and again."""
    return os.open(path, os.O_RDONLY)


def _lines(path: str) -> list[bytes]:
    """What a file of /proc holds now, which comes in pieces."""
    file, data = _kept(path), b""
    os.lseek(file, 0, os.SEEK_SET)  # each piece of a `pread` would have all before it made anew
    while piece := os.read(file, BLOCK):
        data += piece
    return data.splitlines()


def busy_and_total(line: bytes) -> tuple[float, float]:
    """Seconds that a line ``cpu...`` of /proc/stat counts; waiting for a disk is idle."""
    # user, nice, system, idle, iowait, irq, softirq, steal; guests are in user.
    counts = [int(ticks) for ticks in line.split()[1:9]]
    total = sum(counts)
    return (total - counts[3] - counts[4]) * TICK, total * TICK


def all_cores() -> tuple[float, float]:
    """Busy and total seconds of all cores together."""
    return busy_and_total(os.pread(_kept(STAT), 256, 0).partition(b"\n")[0])


def each_core() -> dict[str, tuple[float, float]]:
    """Busy and total seconds of each core, by its name ``cpu0``."""
    lines = [line for line in _lines(STAT) if line.startswith(b"cpu")]
    return {line.split(None, 1)[0].decode(): busy_and_total(line) for line in lines[1:]}


def memory_used() -> float:
    """MiB that programs cannot get."""
    # The two are among the first lines.
    first = os.pread(_kept(AMOUNTS), 512, 0).splitlines()[:-1]
    amounts = dict(line.split(b":", 1) for line in first)
    total, free = (int(amounts[name].split()[0]) for name in (b"MemTotal", b"MemAvailable"))
    return (total - free) / 1024


def disk_bytes() -> dict[str, tuple[int, int]]:
    """Bytes read from and written to each disk and partition; nothing where none is shown."""
    with suppress(FileNotFoundError):
        fields = [line.split() for line in _lines(DISKS)]
        return {f[2].decode(): (int(f[5]) * SECTOR, int(f[9]) * SECTOR) for f in fields}
    return {}


def card_bytes() -> dict[str, tuple[int, int]]:
    """Bytes that each network card received and sent; nothing where none is shown."""
    with suppress(FileNotFoundError):
        pairs = [line.rpartition(b":") for line in _lines(CARDS)[2:]]
        counts = {name.strip().decode(): rest.split() for name, _, rest in pairs}
        return {name: (int(found[0]), int(found[8])) for name, found in counts.items()}
    return {}
