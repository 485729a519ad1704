"""The host's series: always there, so that a trace without a GPU is of use."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from gpumon.series import Series, Source, Unavailable

if sys.platform == "linux":
    from gpumon import linux as system

    VIA = "/proc/"
else:
    from gpumon import elsewhere as system  # type: ignore[no-redef]

    VIA = "psutil, as Linux's "

MIB = 2**20


def host_description() -> dict[str, Any]:
    return {
        "name": "host",
        "kind": "host",
        "cores": system.cores(),
        "memory total (MiB)": round(system.memory()[0] / MIB),
    }


def host_sources() -> list[Source]:
    return [_cpu(), _cores(), _memory(), _disk(), _network(), _sampler()]


def sampler_memory() -> float:
    """MiB that the calling process holds."""
    return system.resident() / MIB


def _percent(new: tuple[float, float], old: tuple[float, float]) -> float:
    return min(100.0, max(0.0, 100 * (new[0] - old[0]) / (new[1] - old[1])))


def _cpu() -> Source:
    before = [system.cpu()]
    share: list[float | None] = [None]
    # The kernel counts in ticks of 10 ms: over less than 50 ms a share means nothing.
    least = 0.05 * system.cores()

    def read() -> tuple[float | None]:
        now = system.cpu()
        if now[1] - before[0][1] >= least:
            share[0] = _percent(now, before[0])
            before[0] = now
        return (share[0],)

    api = f"{VIA}stat, busy share of all cores since the reading before"
    return Source("host", [Series("host/cpu (%)", api, 1)], read, every=0.1)


def _cores() -> Source:
    before = system.cpu_cores()
    api = f"{VIA}stat, busy share since the reading before"
    series = [Series(f"host/cpu{number} (%)", api) for number in range(len(before))]

    def read() -> list[float | None]:
        now = system.cpu_cores()
        if len(now) != len(before):
            raise Unavailable("the number of cores has changed", permanent=True)
        shares = [
            _percent(new, old) if new[1] - old[1] >= 0.05 else None
            for new, old in zip(now, before, strict=True)
        ]
        before[:] = now
        return shares

    return Source("host", series, read, every=1.0)


def _memory() -> Source:
    def read() -> tuple[float]:
        total, available = system.memory()
        return ((total - available) / MIB,)

    api = f"{VIA}meminfo, total less available"
    return Source("host", [Series("host/memory used (MiB)", api)], read, every=0.5)


def _rates(keys: list[str], api: str, counters: Callable[[], tuple[int, int] | None]) -> Source:
    """MiB/s from byte counters that only grow."""
    before: list[tuple[float, tuple[int, int]]] = []

    def read() -> list[float | None]:
        now, counts = time.monotonic(), counters()
        if counts is None:
            raise Unavailable("the system shows no such device (a container?)", permanent=True)
        rates: list[float | None] = [None, None]
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
    keys = ["host/disk read (MiB/s)", "host/disk written (MiB/s)"]
    return _rates(keys, f"{VIA}diskstats, all physical disks", system.disk)


def _network() -> Source:
    keys = ["host/network received (MiB/s)", "host/network sent (MiB/s)"]
    return _rates(keys, f"{VIA}net/dev, all interfaces except the loopback", system.network)


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
