"""This module reads which other programs compute on a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psutil

from gpumon.nvml import (
    Device,
    close_nvml,
    nvml,
    open_nvml,
    query,
)
from gpumon.series import Series, Source, Unavailable

MIB = 2**20
EVERY = 5.0
"""Seconds. NVML takes milliseconds to list processes, under a lock of the driver: not often."""
MOST_NEIGHBOURS = 20
"""Events on a GPU: another user may start one process after the other."""
NOT_FOUND = 6
Holder = tuple[int, float | None]
"""A process that computes on a GPU, and MiB of its memory; None if the driver does not say."""


@dataclass
class ProgramProcesses:
    """The watched program's processes, looked up once a second at most for all GPUs."""

    members: Callable[[], Iterable[int]]
    known: set[int] = field(default_factory=set)
    looked: float = float("-inf")

    def __call__(self) -> set[int]:
        now = time.monotonic()
        if now - self.looked > 1.0:
            self.known, self.looked = set(self.members()), now
        return self.known


def sharing_sources(device: Device, own_processes: Callable[[], set[int]]) -> list[Source]:
    """Memory and SM use of a GPU by the recorded program and by all other processes.

    own_processes: the process numbers of the recorded program. Each process of another program is
    an event ``shared``, once.
    """
    return [_memory(device, own_processes), _use(device, own_processes)]


def _memory(device: Device, own_processes: Callable[[], set[int]]) -> Source:
    api = "nvmlDeviceGetComputeRunningProcesses; unknown processes (a container) are no reading"
    names = ("memory mine (MiB)", "memory others (MiB)", "other processes (count)")
    reported: set[int] = set()

    def read() -> list[float | None]:
        holders = processes_on(device.handle)
        own = own_processes() if holders else set()
        others = [holder for holder in holders if holder[0] not in own]
        if any(not psutil.pid_exists(process) for process, _ in others):
            return [None, None, None]
        for process, memory in others:
            if process not in reported and len(reported) < MOST_NEIGHBOURS:
                reported.add(process)
                event = {"device": device.name, "process": process, "name": process_name(process)}
                source.pending_events.append(("shared", event | {"memory (MiB)": memory}))
        ours = [holder for holder in holders if holder[0] in own]
        return [_sum(ours), _sum(others), float(len(others))]

    series = [Series(f"{device.name}/{name}", api) for name in names]
    source = Source(device.name, series, read, EVERY)
    return source


def _use(device: Device, own_processes: Callable[[], set[int]]) -> Source:
    """Each process's mean over the driver's samples since the reading before."""
    pynvml = nvml()
    api = "nvmlDeviceGetProcessUtilization, mean of the driver's samples since the reading before"
    seen = [0]

    def read() -> list[float | None]:
        try:
            samples = query(pynvml.nvmlDeviceGetProcessUtilization, device.handle, seen[0])
        except Unavailable as error:
            if error.code != NOT_FOUND:
                raise
            return [0.0, 0.0]  # no process has used it since
        fresh: dict[int, list[int]] = {}
        for sample in samples:
            if sample.timeStamp > seen[0] and sample.smUtil <= 100:
                fresh.setdefault(int(sample.pid), []).append(int(sample.smUtil))
        seen[0] = max([seen[0], *(int(sample.timeStamp) for sample in samples)])
        own = own_processes()
        if any(p not in own and not psutil.pid_exists(p) for p in fresh):
            return [None, None]
        means = {process: sum(shares) / len(shares) for process, shares in fresh.items()}
        ours = sum(mean for process, mean in means.items() if process in own)
        return [min(100.0, ours), min(100.0, sum(means.values()) - ours)]

    series = [Series(f"{device.name}/SM use {whose} (%)", api, 1) for whose in ("mine", "others")]
    return Source(device.name, series, read, EVERY)


def _sum(holders: Sequence[Holder]) -> float | None:
    amounts = [memory for _, memory in holders if memory is not None]
    return sum(amounts) if len(amounts) == len(holders) else None


def processes_on(handle: Any) -> list[Holder]:
    """The processes that compute on a GPU now; Unavailable if the driver does not report them."""
    return [
        (int(one.pid), None if one.usedGpuMemory is None else one.usedGpuMemory / MIB)
        for one in query(nvml().nvmlDeviceGetComputeRunningProcesses, handle)
    ]


def compute_processes(uuids: Sequence[str]) -> list[tuple[str, int, float | None]]:
    """GPU, process and its memory in MiB (None if the driver does not say) on these GPUs.

    It opens NVML just for this call. Raises Unavailable if the driver does not report them.
    """
    open_nvml()
    try:
        handles = [(uuid, query(nvml().nvmlDeviceGetHandleByUUID, uuid)) for uuid in uuids]
        return [(uuid, *holder) for uuid, handle in handles for holder in processes_on(handle)]
    finally:
        close_nvml()


def process_name(process: int) -> str | None:
    """A process's name; None if it is gone or hidden."""
    with suppress(psutil.Error):
        return str(psutil.Process(process).name())
    return None
