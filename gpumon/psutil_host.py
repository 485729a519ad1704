"""This module reads the counters of :mod:`gpumon.procfs` by psutil on other systems than Linux."""

from __future__ import annotations

from typing import Any

import psutil

MIB = 2**20
STAT, MEMORY = "psutil.cpu_times", "psutil.virtual_memory, total less available"
DISKS, CARDS = "psutil.disk_io_counters", "psutil.net_io_counters"


def all_cores() -> tuple[float, float]:
    return _busy_and_total(psutil.cpu_times())


def each_core() -> dict[str, tuple[float, float]]:
    times = psutil.cpu_times(percpu=True)
    return {f"cpu{number}": _busy_and_total(each) for number, each in enumerate(times)}


def memory_used() -> float:
    now = psutil.virtual_memory()
    return float((now.total - now.available) / MIB)


def disk_bytes() -> dict[str, tuple[int, int]]:
    shown = psutil.disk_io_counters(perdisk=True, nowrap=False) or {}
    return {name: (disk.read_bytes, disk.write_bytes) for name, disk in shown.items()}


def card_bytes() -> dict[str, tuple[int, int]]:
    shown = psutil.net_io_counters(pernic=True, nowrap=False) or {}
    return {name: (card.bytes_recv, card.bytes_sent) for name, card in shown.items()}


def _busy_and_total(times: Any) -> tuple[float, float]:
    """Seconds: waiting for a disk is idle, and guests are in user time already."""
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return total - times.idle - getattr(times, "iowait", 0.0), total
