"""This module reads the host's series, which are recorded on machines without a GPU too."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from gpumon.process import busy_and_total
from gpumon.series import Series, Source, Unavailable, per_second

MIB = 2**20
# Layers over other disks, which would count the same bytes again, and disks in memory.
NOT_DISKS = ("loop", "ram", "zram", "dm-", "md")
LOOPBACK = ("lo", "lo0", "Loopback Pseudo-Interface 1")


def host_description() -> dict[str, Any]:
    return {
        "name": "host",
        "kind": "host",
        "cores": os.cpu_count() or 1,
        "memory total (MiB)": round(psutil.virtual_memory().total / MIB),
    }


def host_sources() -> list[Source]:
    return [_cpu(), _memory(), _disk(), _network(), _sampler()]


def sampler_memory() -> float:
    """MiB that the calling process holds."""
    return float(psutil.Process().memory_info().rss / MIB)


def _cpu() -> Source:
    """Busy shares of all cores together and of each: waiting for a disk is idle."""
    cores = range(os.cpu_count() or 1)
    before = busy_and_total(cores)

    def read() -> list[float | None]:
        now = busy_and_total(cores)
        if now.keys() != before.keys():
            raise Unavailable("the number of cores has changed", permanent=True)
        grown = [(now[c][0] - before[c][0], now[c][1] - before[c][1]) for c in before]
        before.update(now)
        grown.insert(0, (sum(busy for busy, _ in grown), sum(total for _, total in grown)))
        # The kernel counts in ticks of 10 ms: over less than 50 ms a share means nothing.
        return [100 * busy / total if total >= 0.05 else None for busy, total in grown]

    names = ["host/cpu (%)", *(f"host/cpu{number} (%)" for number in before)]
    api = "/proc/stat, busy share since the reading before"
    return Source(
        "host", [Series(name, api, int(n == 0)) for n, name in enumerate(names)], read, 1.0
    )


def _memory() -> Source:
    def read() -> tuple[float]:
        now = psutil.virtual_memory()
        return ((now.total - now.available) / MIB,)

    api = "psutil.virtual_memory, total less available"
    return Source("host", [Series("host/memory used (MiB)", api)], read, every=1.0)


def _rates(
    names: tuple[str, str],
    fields: tuple[str, str],
    api: str,
    counters: Callable[[], dict[str, Any] | None],
    counts: Callable[[str], bool],
) -> Source:
    """MiB/s from two byte counters that only grow, summed over the devices that count."""
    rates = per_second(MIB, least=0.1)

    def read() -> list[float | None]:
        found: dict[str, Any] = {}
        with contextlib.suppress(FileNotFoundError):  # some containers show no disks at all
            found = counters() or {}
        counted = [each for name, each in found.items() if counts(name)]
        if not counted:
            raise Unavailable("the system shows no such device (a container?)", permanent=True)
        return rates([sum(getattr(each, field) for each in counted) for field in fields])

    return Source("host", [Series(f"host/{name} (MiB/s)", api, 2) for name in names], read, 2.0)


def _disk() -> Source:
    return _rates(
        ("disk read", "disk written"),
        ("read_bytes", "write_bytes"),
        "psutil.disk_io_counters, all physical disks",
        lambda: psutil.disk_io_counters(perdisk=True, nowrap=False),
        _physical,
    )


@functools.cache
def _physical(name: str) -> bool:
    """Whether a device is a disk; on Linux its partitions, which count again, are shown too."""
    blocks = Path("/sys/block")
    whole = not blocks.exists() or (blocks / name.replace("/", "!")).exists()
    return whole and not name.startswith(NOT_DISKS)


def _network() -> Source:
    return _rates(
        ("network received", "network sent"),
        ("bytes_recv", "bytes_sent"),
        "psutil.net_io_counters, all interfaces except the loopback",
        lambda: psutil.net_io_counters(pernic=True, nowrap=False),
        lambda name: name not in LOOPBACK,
    )


def _sampler() -> Source:
    """What the sampler itself costs, as a series, so that it is known even after a kill -9."""
    before = [(time.monotonic(), time.process_time())]

    def read() -> tuple[float | None]:
        now = (time.monotonic(), time.process_time())
        wall, used = now[0] - before[0][0], now[1] - before[0][1]
        before[0] = now
        # The first reading is the start-up's, not the sampling's.
        return (100 * used / wall if wall > 0.5 else None,)

    api = "time.process_time of the sampler, share of one core"
    return Source("sampler", [Series("sampler/cpu (%)", api, 2)], read, every=1.0)
