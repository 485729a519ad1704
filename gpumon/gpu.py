"""This module defines the series of one GPU, and reads them through NVML.

One source is one call into the driver: one that fails makes its own series NaN and no other.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import psutil

from gpumon.nvml import Device, close_nvml, failure, field_values, nvml, open_nvml, query
from gpumon.series import Series, Source, Unavailable, per_second

MIB = 2**20
MILLI = 1000
Calls = dict[str, Callable[[], float]]
"""Ways to read one quantity, the best first, by what the trace calls them."""
METRICS = (
    (2, "SM activity (%)", 1),
    (3, "SM occupancy (%)", 1),
    (5, "tensor activity (%)", 1),
    (10, "DRAM bandwidth (%)", 1),
    (20, "PCIe sent (MiB/s)", 0),
    (21, "PCIe received (MiB/s)", 0),
    (61, "NVLink sent (MiB/s)", 0),
    (60, "NVLink received (MiB/s)", 0),
)
ALL_LINKS = 0xFFFFFFFF
EVERY = 5.0
"""Seconds. NVML takes milliseconds to list processes, under a lock of the driver: not often."""
MOST_NEIGHBOURS = 20
"""Events on a GPU: another user may start one process after the other."""
NOT_FOUND = 6
Holder = tuple[int, float | None]
"""A process that computes on a GPU, and MiB of its memory; None where the driver does not say."""


def gpu_sources(device: Device, own_processes: Callable[[], set[int]]) -> list[Source]:
    """Every source of a device, not read yet; own_processes: those of the recorded program."""
    if device.handle is None:
        return []
    metrics, has_metrics = _gpm(device)
    return [
        _utilisation(device),
        *_quantities(device),
        _memory(device, own_processes),
        _use(device, own_processes),
        *([] if has_metrics else _links(device)),
        *metrics,
    ]


def _utilisation(device: Device) -> Source:
    """The share of the driver's last 1/6 s to 1 s in which at least one kernel ran."""
    ask, handle = nvml().nvmlDeviceGetUtilizationRates, device.handle

    def read() -> list[float]:
        rates = ask(handle)
        return [rates.gpu, rates.memory]

    names = ("utilisation (%)", "memory utilisation (%)")
    series = [Series(f"{device.name}/{name}", ask.__name__) for name in names]
    # The driver's own value changes no more often.
    return Source(device.name, series, read, 0.2)


def _quantities(device: Device) -> list[Source]:
    """The sources of one quantity, each by the first of its calls that this driver answers."""
    pynvml, handle = nvml(), device.handle
    memory = pynvml.nvmlDeviceGetMemoryInfo
    instant = pynvml.NVML_FI_DEV_POWER_INSTANT
    heat = pynvml.NVML_TEMPERATURE_GPU
    clock = pynvml.nvmlDeviceGetClockInfo

    def call(name: str, *arguments: Any) -> Calls:
        return {name: partial(getattr(pynvml, name), handle, *arguments)}

    start: list[int] = []

    def joules() -> float:
        now = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        start[:] = start or [now]
        return (now - start[0]) / MILLI

    quantities: dict[str, tuple[int, float, Calls]] = {
        # Version 2 leaves out what the driver reserves for itself, as nvidia-smi does. Frameworks'
        # allocators keep what they took: asked more often, it would say the same.
        "memory used (MiB)": (0, 0.5, {
            "nvmlDeviceGetMemoryInfo_v2": lambda: memory(handle, pynvml.nvmlMemory_v2).used / MIB,
            "nvmlDeviceGetMemoryInfo (counts the driver's reserve as used)": (
                lambda: memory(handle).used / MIB
            ),
        }),
        "power (W)": (1, 0.0, {
            f"nvmlDeviceGetFieldValues {instant} (instant power)": (
                lambda: field_values(handle, [instant], "uiVal")[0] / MILLI
            ),
            "nvmlDeviceGetPowerUsage (a mean over 1 s on Ampere and later)": (
                lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / MILLI
            ),
        }),
        # The older call is to go with CUDA 14.
        "temperature (C)": (0, 1.0, call("nvmlDeviceGetTemperatureV", heat)
                            | call("nvmlDeviceGetTemperature", heat)),
        "SM clock (MHz)": (0, 1.0, call(clock.__name__, pynvml.NVML_CLOCK_SM)),
        "memory clock (MHz)": (0, 1.0, call(clock.__name__, pynvml.NVML_CLOCK_MEM)),
        # NVML's bits, see gpumon.words.reasons; the second name is that before driver 535.
        "throttle reasons (bits)": (0, 1.0, call("nvmlDeviceGetCurrentClocksEventReasons")
                                    | call("nvmlDeviceGetCurrentClocksThrottleReasons")),
        # The counter itself runs since the driver was loaded.
        "energy (J)": (1, 0.5, {
            "nvmlDeviceGetTotalEnergyConsumption, difference from the start": joules
        }),
    }  # fmt: skip
    return [_source(device, name, *quantity) for name, quantity in quantities.items()]


def _source(device: Device, name: str, digits: int, every: float, calls: Calls) -> Source:
    *better, (api, read) = calls.items()
    for name_of, call in better:
        with contextlib.suppress(Exception):
            call()
            api, read = name_of, call
            break
    series = [Series(f"{device.name}/{name}", api, digits)]
    return Source(device.name, series, lambda: [read()], every)


def _gpm(device: Device) -> tuple[list[Source], bool]:
    """GPM's metrics of a device, each the mean since the reading before; and whether it has any."""
    try:
        if not query(nvml().nvmlGpmQueryDeviceSupport, device.handle).isSupportedDevice:
            raise Unavailable("GPM is not supported by this GPU (Hopper or later)", permanent=True)
        return [_metrics(device)], True
    except Unavailable as error:
        reason = str(error)
    names = [name for _, name, _ in METRICS if name.endswith("(%)")]
    series = [Series(f"{device.name}/{name}", "nvmlGpmMetricsGet", 0, reason) for name in names]
    return [Source(device.name, series, list, 0.5, dead=True)], False


def _metrics(device: Device) -> Source:
    pynvml, handle = nvml(), device.handle
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(METRICS)
    cells = []
    for metric, (number, _, _) in zip(request.metrics, METRICS, strict=False):
        metric.metricId = number
        # Numbers that share the request's memory: pynvml's structures are slow to look into.
        value = ctypes.c_double.from_buffer(metric, type(metric).value.offset)
        cells.append((value, ctypes.c_uint.from_buffer(metric, type(metric).nvmlReturn.offset)))
    samples = [query(pynvml.nvmlGpmSampleAlloc) for _ in range(2)]
    taken = [False]

    def read() -> list[float | Unavailable | None]:
        pynvml.nvmlGpmSampleGet(handle, samples[1])
        request.sample1, request.sample2 = samples
        samples.reverse()
        if not taken[0]:
            taken[0] = True
            return [None] * len(METRICS)
        pynvml.nvmlGpmMetricsGet(request)
        if all(code.value for _, code in cells):
            raise failure("GPM", cells[0][1].value)
        return [failure("GPM", code.value) if code.value else cell.value for cell, code in cells]

    series = [
        Series(f"{device.name}/{name}", f"nvmlGpmMetricsGet, metric {number}", digits)
        for number, name, digits in METRICS
    ]
    return Source(device.name, series, read, 0.5)


def _links(device: Device) -> list[Source]:
    pynvml = nvml()
    pcie = [pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES]
    way = "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_"
    nvlink = [(getattr(pynvml, f"{way}{end}"), ALL_LINKS) for end in ("TX", "RX")]
    # nvmlDeviceGetPcieThroughput blocks for 20 ms.
    return [_counters(device, "PCIe", pcie, 2**20), _counters(device, "NVLink", nvlink, 2**10)]


def _counters(device: Device, bus: str, fields: list[Any], per_mib: int) -> Source:
    """MiB/s from two counters that only grow; the rate is that since the reading before."""
    names = [f"{bus} sent (MiB/s)", f"{bus} received (MiB/s)"]
    api = f"nvmlDeviceGetFieldValues {fields}, difference over time"
    series = [Series(f"{device.name}/{name}", api) for name in names]
    rates = per_second(per_mib)

    def read() -> list[float | None]:
        try:
            return rates(field_values(device.handle, fields))
        except Unavailable as error:
            # What a driver does not know, it will not learn.
            error.permanent |= error.code == nvml().NVML_ERROR_INVALID_ARGUMENT
            raise

    return Source(device.name, series, read, 0.5)


def cached(members: Callable[[], Iterable[int]]) -> Callable[[], set[int]]:
    """The watched program's processes, looked up once a second at most for all GPUs."""
    found: set[int] = set()
    looked = [float("-inf")]

    def known() -> set[int]:
        if time.monotonic() - looked[0] > 1.0:
            found.clear()
            found.update(members())
            looked[0] = time.monotonic()
        return found

    return known


def _memory(device: Device, own_processes: Callable[[], set[int]]) -> Source:
    """Memory of the program and of others, each of whose processes is an event, once."""
    api = "nvmlDeviceGetComputeRunningProcesses; unknown processes (a container) give no reading"
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

    Raises Unavailable if the driver does not report them.
    """
    open_nvml()
    try:
        handles = [(uuid, query(nvml().nvmlDeviceGetHandleByUUID, uuid)) for uuid in uuids]
        return [(uuid, *holder) for uuid, handle in handles for holder in processes_on(handle)]
    finally:
        close_nvml()


def process_name(process: int) -> str | None:
    """A process's name; None where it is gone or hidden."""
    with contextlib.suppress(psutil.Error):
        return str(psutil.Process(process).name())
    return None
