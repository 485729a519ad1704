"""The host's series, read through psutil: always there, so a trace without a GPU is of use."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psutil

from gpumon.series import Series, Source, Unavailable

MIB = 2**20


def host_description() -> dict[str, Any]:
    return {
        "name": "host",
        "kind": "host",
        "cores": psutil.cpu_count() or 1,
        "memory total (MiB)": round(psutil.virtual_memory().total / MIB),
    }


def host_sources() -> list[Source]:
    return [_cpu(), _cores(), _memory(), _disk(), _network(), _sampler()]


def _busy(times: Any) -> tuple[float, float]:
    """Busy and total CPU seconds. Guest time is in user already, iowait counts as idle."""
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return total - times.idle - getattr(times, "iowait", 0.0), total


def _cpu() -> Source:
    before = [_busy(psutil.cpu_times())]
    share: list[float | None] = [None]
    least = 0.05 * (psutil.cpu_count() or 1)

    def read() -> tuple[float | None]:
        now = _busy(psutil.cpu_times())
        busy, total = now[0] - before[0][0], now[1] - before[0][1]
        if total < least:
            # The kernel counts in ticks of 10 ms: over less than 50 ms a share means nothing.
            return (share[0],)
        before[0] = now
        share[0] = min(100.0, max(0.0, 100 * busy / total))
        return (share[0],)

    api = "psutil.cpu_times, busy share of all cores since the reading before"
    return Source("host", [Series("host/cpu (%)", api, 1)], read, every=0.1)


def _memory() -> Source:
    def read() -> tuple[float]:
        memory = psutil.virtual_memory()
        return ((memory.total - memory.available) / MIB,)

    api = "psutil.virtual_memory, total less available"
    return Source("host", [Series("host/memory used (MiB)", api)], read, every=0.5)


def _cores() -> Source:
    before = [_busy(times) for times in psutil.cpu_times(percpu=True)]
    api = "psutil.cpu_times(percpu), busy share since the reading before"
    series = [Series(f"host/cpu{number} (%)", api) for number in range(len(before))]

    def read() -> list[float | None]:
        now = [_busy(times) for times in psutil.cpu_times(percpu=True)]
        if len(now) != len(before):
            raise Unavailable("the number of cores has changed", permanent=True)
        shares = [
            100 * (new[0] - old[0]) / (new[1] - old[1]) if new[1] - old[1] >= 0.05 else None
            for new, old in zip(now, before, strict=True)
        ]
        before[:] = now
        return [None if share is None else min(100.0, max(0.0, share)) for share in shares]

    return Source("host", series, read, every=1.0)


def _rates(keys: list[str], api: str, counters: Callable[[], list[int]]) -> Source:
    """MiB/s from byte counters that only grow."""
    before: list[tuple[float, list[int]]] = []

    def read() -> list[float | None]:
        now, counts = time.monotonic(), counters()
        rates: list[float | None] = [None] * len(counts)
        if before and now - before[0][0] > 0.1:
            seconds = now - before[0][0]
            rates = [
                (new - old) / MIB / seconds if new >= old else None
                for new, old in zip(counts, before[0][1], strict=True)
            ]
        before[:] = [(now, counts)]
        return rates

    return Source("host", [Series(key, api, 2) for key in keys], read, every=1.0)


def _disk() -> Source:
    def counters() -> list[int]:
        disk = psutil.disk_io_counters()
        if disk is None:
            raise Unavailable("the system shows no disk counters (a container?)", permanent=True)
        return [disk.read_bytes, disk.write_bytes]

    keys = ["host/disk read (MiB/s)", "host/disk written (MiB/s)"]
    return _rates(keys, "psutil.disk_io_counters, all disks", counters)


def _network() -> Source:
    def counters() -> list[int]:
        network = psutil.net_io_counters()
        if network is None:
            raise Unavailable("the system shows no network counters", permanent=True)
        return [network.bytes_recv, network.bytes_sent]

    keys = ["host/network received (MiB/s)", "host/network sent (MiB/s)"]
    return _rates(keys, "psutil.net_io_counters, all interfaces with loopback", counters)


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
