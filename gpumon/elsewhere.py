"""The functions of ``gpumon.linux`` for other systems, through psutil."""

from __future__ import annotations

from typing import Any

import psutil


def cores() -> int:
    return psutil.cpu_count() or 1


def _share(times: Any) -> tuple[float, float]:
    total = float(sum(times))
    return total - times.idle, total


def cpu() -> tuple[float, float]:
    return _share(psutil.cpu_times())


def cpu_cores() -> list[tuple[float, float]]:
    return [_share(times) for times in psutil.cpu_times(percpu=True)]


def memory() -> tuple[int, int]:
    found = psutil.virtual_memory()
    return found.total, found.available


def disk() -> tuple[int, int] | None:
    found = psutil.disk_io_counters()
    return None if found is None else (found.read_bytes, found.write_bytes)


def network() -> tuple[int, int] | None:
    found = psutil.net_io_counters()
    return None if found is None else (found.bytes_recv, found.bytes_sent)


def resident() -> int:
    return int(psutil.Process().memory_info().rss)
