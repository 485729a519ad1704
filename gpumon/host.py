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

from gpumon.series import Series, Source, Unavailable

MIB = 2**20
# Layers over other disks, which would count the same bytes again, and disks in memory.
NOT_DISKS = ("loop", "ram", "zram", "dm-", "md")
LOOPBACK = ("lo", "lo0", "Loopback Pseudo-Interface 1")


def host_description() -> dict[str, Any]:
    return {
        "name": "host",
        "kind": "host",
        "cores": _count(),
        "memory total (MiB)": round(psutil.virtual_memory().total / MIB),
    }


def host_sources() -> list[Source]:
    return [_cpu(), _cores(), _memory(), _disk(), _network(), _sampler()]


def sampler_memory() -> float:
    """MiB that the calling process holds."""
    return float(psutil.Process().memory_info().rss / MIB)


def _count() -> int:
    return os.cpu_count() or 1


def _busy_and_total(times: Any) -> tuple[float, float]:
    """Seconds: waiting for a disk is idle, and guests are in user time already."""
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return total - times.idle - getattr(times, "iowait", 0.0), total


def _percent(new: tuple[float, float], old: tuple[float, float]) -> float:
    return min(100.0, max(0.0, 100 * (new[0] - old[0]) / (new[1] - old[1])))


def _cpu() -> Source:
    before = [_busy_and_total(psutil.cpu_times())]
    share: list[float | None] = [None]
    # The kernel counts in ticks of 10 ms: over less than 50 ms a share means nothing.
    least = 0.05 * _count()

    def read() -> tuple[float | None]:
        now = _busy_and_total(psutil.cpu_times())
        if now[1] - before[0][1] >= least:
            share[0] = _percent(now, before[0])
            before[0] = now
        return (share[0],)

    api = "psutil.cpu_times, busy share of all cores since the reading before"
    return Source("host", [Series("host/cpu (%)", api, 1)], read, every=0.5)


def _cores() -> Source:
    before = [_busy_and_total(times) for times in psutil.cpu_times(percpu=True)]
    api = "psutil.cpu_times, busy share since the reading before"
    series = [Series(f"host/cpu{number} (%)", api) for number in range(len(before))]

    def read() -> list[float | None]:
        now = [_busy_and_total(times) for times in psutil.cpu_times(percpu=True)]
        if len(now) != len(before):
            raise Unavailable("the number of cores has changed", permanent=True)
        shares = [
            _percent(new, old) if new[1] - old[1] >= 0.05 else None for new, old in zip(now, before)
        ]
        before[:] = now
        return shares

    return Source("host", series, read, every=1.0)


def _memory() -> Source:
    def read() -> tuple[float]:
        now = psutil.virtual_memory()
        return ((now.total - now.available) / MIB,)

    api = "psutil.virtual_memory, total less available"
    return Source("host", [Series("host/memory used (MiB)", api)], read, every=1.0)


def _rates(keys: list[str], api: str, counters: Callable[[], list[tuple[int, int]]]) -> Source:
    """MiB/s from pairs of byte counters that only grow, of all that count."""
    before: list[tuple[float, tuple[int, int]]] = []

    def read() -> list[float | None]:
        now, found = time.monotonic(), counters()
        if not found:
            raise Unavailable("the system shows no such device (a container?)", permanent=True)
        counts = sum(one for one, _ in found), sum(other for _, other in found)
        rates: list[float | None] = [None, None]
        if before and now - before[0][0] > 0.1:
            seconds = now - before[0][0]
            rates = [
                (new - old) / MIB / seconds if new >= old else None
                for new, old in zip(counts, before[0][1])
            ]
        before[:] = [(now, counts)]
        return rates

    return Source("host", [Series(key, api, 2) for key in keys], read, every=1.0)


def _disk() -> Source:
    def moved() -> list[tuple[int, int]]:
        # Some containers show no disks at all.
        with contextlib.suppress(FileNotFoundError):
            disks = psutil.disk_io_counters(perdisk=True, nowrap=False) or {}
            found = [disk for name, disk in disks.items() if _physical(name)]
            return [(disk.read_bytes, disk.write_bytes) for disk in found]
        return []

    keys = ["host/disk read (MiB/s)", "host/disk written (MiB/s)"]
    return _rates(keys, "psutil.disk_io_counters, all physical disks", moved)


@functools.cache
def _physical(name: str) -> bool:
    """Whether a device is a disk; on Linux its partitions, which count again, are shown too."""
    blocks = Path("/sys/block")
    whole = not blocks.exists() or (blocks / name.replace("/", "!")).exists()
    return whole and not name.startswith(NOT_DISKS)


def _network() -> Source:
    def moved() -> list[tuple[int, int]]:
        with contextlib.suppress(FileNotFoundError):
            cards = psutil.net_io_counters(pernic=True, nowrap=False) or {}
            found = [card for name, card in cards.items() if name not in LOOPBACK]
            return [(card.bytes_recv, card.bytes_sent) for card in found]
        return []

    keys = ["host/network received (MiB/s)", "host/network sent (MiB/s)"]
    return _rates(keys, "psutil.net_io_counters, all interfaces except the loopback", moved)


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
