"""The host's series, read through psutil: always there, so a trace without a GPU is of use."""

from __future__ import annotations

import time
from typing import Any

import psutil

from gpumon.series import Series, Source

MIB = 2**20


def host_description() -> dict[str, Any]:
    return {
        "name": "host",
        "kind": "host",
        "cores": psutil.cpu_count() or 1,
        "memory total (MiB)": round(psutil.virtual_memory().total / MIB),
    }


def host_sources() -> list[Source]:
    return [_cpu(), _memory(), _sampler()]


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
