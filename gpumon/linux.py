"""The host's counters straight from Linux's /proc, each in one read of a file kept open.

psutil gives the same numbers anywhere, but at 5 to 10 times the price, and what a monitor costs is
taken from the training. ``gpumon.elsewhere`` has these functions for other systems.
"""

from __future__ import annotations

import functools
import os
from contextlib import suppress
from pathlib import Path

TICK = 1 / os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
SECTOR = 512
# Layers over other disks, which would count the same bytes again, and disks in memory.
NOT_DISKS = ("loop", "ram", "zram", "dm-", "md")


def slurp(path: str, most: int = 65536) -> bytes:
    """A small file of /proc, read once and closed."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, most)
    finally:
        os.close(file)


@functools.cache
def _opened(path: str) -> int:
    return os.open(path, os.O_RDONLY)


def _again(path: str) -> bytes:
    """The present content of a file that stays open."""
    return os.pread(_opened(path), 1 << 20, 0)


def cores() -> int:
    return os.cpu_count() or 1


def _share(line: bytes) -> tuple[float, float]:
    """Busy and total seconds of a line of /proc/stat: waiting for a disk is idle, guests are
    already in user time."""
    ticks = [int(field) for field in line.split()[1:9]]
    total = sum(ticks)
    return (total - ticks[3] - ticks[4]) * TICK, total * TICK


def cpu() -> tuple[float, float]:
    """Busy and total seconds of all cores together."""
    data = _again("/proc/stat")
    return _share(data[: data.index(b"\n")])


def cpu_cores() -> list[tuple[float, float]]:
    """Busy and total seconds of each core."""
    lines = _again("/proc/stat").split(b"\n")[1:]
    return [_share(line) for line in lines if line.startswith(b"cpu")]


def memory() -> tuple[int, int]:
    """Total and available bytes."""
    data = _again("/proc/meminfo")

    def field(name: bytes) -> int:
        start = data.index(name) + len(name)
        return int(data[start : data.index(b"kB", start)]) * 1024

    return field(b"MemTotal:"), field(b"MemAvailable:")


@functools.cache
def _disks() -> frozenset[bytes]:
    with suppress(OSError):
        names = [disk.name for disk in Path("/sys/block").iterdir()]
        return frozenset(n.encode() for n in names if not n.startswith(NOT_DISKS))
    return frozenset()


def disk() -> tuple[int, int] | None:
    """Bytes read and written by all physical disks, or None where none is shown."""
    read = written = 0
    found = False
    for line in _again("/proc/diskstats").split(b"\n"):
        fields = line.split()
        if len(fields) > 9 and fields[2] in _disks():
            found = True
            read += int(fields[5])
            written += int(fields[9])
    return (read * SECTOR, written * SECTOR) if found else None


def network() -> tuple[int, int] | None:
    """Bytes received and sent by all interfaces except the loopback; None if there is none."""
    received = sent = 0
    found = False
    for line in _again("/proc/net/dev").split(b"\n")[2:]:
        name, colon, rest = line.partition(b":")
        if colon and name.strip() != b"lo":
            fields = rest.split()
            found = True
            received += int(fields[0])
            sent += int(fields[8])
    return (received, sent) if found else None


def resident(pid: str = "self") -> int:
    """Resident bytes of a process."""
    return int(slurp(f"/proc/{pid}/statm").split()[1]) * PAGE
