"""This module reads what happens to a GPU: errors of the hardware, and other programs on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from ctypes import byref
from dataclasses import dataclass, field
from typing import Any, Optional

import psutil

from gpumon.nvml import (
    Device,
    close_nvml,
    failure,
    field_values,
    function_of,
    nvml,
    open_nvml,
    query,
)
from gpumon.series import Series, Source, Unavailable

MOST_AT_ONCE = 16
TIMEOUT = 10
"""NVML's code for: no event came."""
WAIT = "nvmlEventSetWait_v2"
XID = 0x8
COUNTED = {"corrected": 0, "uncorrected": 1}
MIB = 2**20
EVERY = 5.0
"""Seconds. NVML takes milliseconds to list processes, under a lock of the driver: not often."""
MOST_NEIGHBOURS = 20
"""Events on a GPU: another user may start one process after the other."""
NOT_FOUND = 6
Holder = tuple[int, Optional[float]]
"""A process that computes on a GPU, and MiB of its memory; None where the driver does not say."""


def hardware_sources(device: Device) -> list[Source]:
    """A whole GPU's errors as counts since the start, each new one an event with its number."""
    try:
        query(nvml().nvmlDeviceGetRemappedRows, device.handle)
    except Unavailable as error:
        if error.permanent:
            return [_xids(device), _errors(device), _pages(device)]
    return [_xids(device), _errors(device), _rows(device)]


def _xids(device: Device) -> Source:
    """NVML keeps XIDs in a queue from the moment it is asked to."""
    pynvml = nvml()
    event = pynvml.c_nvmlEventData_t()
    wait = function_of(WAIT)
    queue: list[Any] = []
    count = [0]

    def read() -> list[float]:
        if not queue:
            made = query(pynvml.nvmlEventSetCreate)
            try:
                query(pynvml.nvmlDeviceRegisterEvents, device.handle, XID, made)
            except Unavailable:
                with suppress(Unavailable):
                    query(pynvml.nvmlEventSetFree, made)
                raise
            queue.append(made)
        for _ in range(MOST_AT_ONCE):
            if code := wait(queue[0], byref(event), 0):
                if code == TIMEOUT:
                    break
                raise failure(WAIT, code)
            if event.eventType == XID:
                count[0] += 1
                source.pending_events.append(
                    ("xid", {"device": device.name, "xid": int(event.eventData)})
                )
        return [float(count[0])]

    series = [Series(f"{device.name}/XIDs (count)", f"{WAIT}, since the start")]
    source = Source(device.name, series, read, 1.0)
    return source


def _errors(device: Device) -> Source:
    pynvml = nvml()

    def counts() -> list[int]:
        call, volatile = pynvml.nvmlDeviceGetTotalEccErrors, pynvml.NVML_VOLATILE_ECC
        return [int(query(call, device.handle, kind, volatile)) for kind in COUNTED.values()]

    names = [f"ECC errors {kind} (count)" for kind in COUNTED]
    return _counter(device, "ecc", names, list(COUNTED), counts, "nvmlDeviceGetTotalEccErrors")


def _rows(device: Device) -> Source:
    """Rows of memory that spare ones have taken the place of (Ampere and later)."""
    pynvml = nvml()

    def counts() -> list[int]:
        corrected, uncorrected, pending, failed = query(
            pynvml.nvmlDeviceGetRemappedRows, device.handle
        )
        return [corrected + uncorrected, pending, failed]

    names = [f"remapped rows{which} (count)" for which in ("", " pending", " failed")]
    kinds = ["done", "pending", "failed"]
    return _counter(device, "remapped", names, kinds, counts, "nvmlDeviceGetRemappedRows")


def _pages(device: Device) -> Source:
    """Pages of memory that were taken out of use (before Ampere, which has no spare rows)."""
    pynvml = nvml()
    fields = [
        getattr(pynvml, f"NVML_FI_DEV_RETIRED_{what}", number)
        for what, number in (("SBE", 29), ("DBE", 30), ("PENDING", 31))
    ]
    api = f"nvmlDeviceGetFieldValues {fields}"

    def counts() -> list[int]:
        corrected, uncorrected, pending = field_values(device.handle, fields)
        return [corrected + uncorrected, pending]

    names = ["retired pages (count)", "retired pages pending (count)"]
    return _counter(device, "retired", names, ["done", "pending"], counts, api)


def _counter(
    device: Device,
    event: str,
    names: Sequence[str],
    kinds: Sequence[str],
    counts: Callable[[], list[int]],
    api: str,
) -> Source:
    first: list[int] = []
    last: list[int] = []

    def read() -> list[float]:
        now = counts()
        if not first:
            first.extend(now)
            last.extend(now)
        for kind, new, old in zip(kinds, now, last):
            if new > old:
                details = {"device": device.name, "kind": kind, "count": new - old}
                source.pending_events.append((event, details))
        last[:] = now
        # A reset of the driver begins to count anew.
        return [float(max(0, new - begun)) for new, begun in zip(now, first)]

    series = [Series(f"{device.name}/{name}", f"{api}, since the start") for name in names]
    source = Source(device.name, series, read, 10.0)
    return source


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
    """GPU, process and its memory in MiB (None where the driver does not say) on these GPUs.

    Opens NVML for this one question. Raises Unavailable if the driver does not report them.
    """
    open_nvml()
    try:
        handles = [(uuid, query(nvml().nvmlDeviceGetHandleByUUID, uuid)) for uuid in uuids]
        return [(uuid, *holder) for uuid, handle in handles for holder in processes_on(handle)]
    finally:
        close_nvml()


def process_name(process: int) -> str | None:
    """A process's name; None where it is gone or hidden."""
    with suppress(psutil.Error):
        return str(psutil.Process(process).name())
    return None
