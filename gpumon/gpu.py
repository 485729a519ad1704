"""This module defines the series of one GPU, and reads them through NVML.

One source is one call into the driver; the scheduler separates them, so that a call that fails
makes its own series NaN and no other.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable
from typing import Any

from gpumon.gpu_processes import sharing_sources
from gpumon.nvml import Device, failure, field_values, nvml, query
from gpumon.series import Series, Source, Unavailable, per_second

MIB = 2**20
MILLI = 1000
Calls = dict[str, Callable[[], float]]
"""Ways to read one figure, the best first, by what the trace calls them."""
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


def gpu_sources(device: Device, own_processes: Callable[[], set[int]]) -> list[Source]:
    """Every source of a device, unprobed; one that cannot be recorded has none.

    own_processes: the process numbers of the recorded program.
    """
    if device.handle is None:
        return []
    metrics, has_metrics = _gpm(device)
    return [
        _utilisation(device),
        *_figures(device),
        _energy(device),
        *sharing_sources(device, own_processes),
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
    # The driver's own figure changes no more often.
    return Source(device.name, series, read, 0.2)


def _figures(device: Device) -> list[Source]:
    """The sources of one figure, each by the first of its calls that this driver answers."""
    pynvml, handle = nvml(), device.handle
    memory = pynvml.nvmlDeviceGetMemoryInfo
    instant = pynvml.NVML_FI_DEV_POWER_INSTANT
    heat = pynvml.NVML_TEMPERATURE_GPU
    clock = pynvml.nvmlDeviceGetClockInfo

    def call(name: str, *arguments: Any) -> Calls:
        return {name: functools.partial(getattr(pynvml, name), handle, *arguments)}

    figures: dict[str, tuple[int, float, Calls]] = {
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
    }  # fmt: skip
    return [_figure(device, name, *figure) for name, figure in figures.items()]


def _figure(device: Device, name: str, digits: int, every: float, calls: Calls) -> Source:
    *better, (api, read) = calls.items()
    for name_of, call in better:
        with contextlib.suppress(Exception):
            call()
            api, read = name_of, call
            break
    return Source(
        device.name, [Series(f"{device.name}/{name}", api, digits)], lambda: [read()], every
    )


def _energy(device: Device) -> Source:
    """Joules since the trace began. The counter itself runs since the driver was loaded."""
    count, handle, start = nvml().nvmlDeviceGetTotalEnergyConsumption, device.handle, list[int]()

    def read() -> list[float]:
        now = count(handle)
        start[:] = start or [now]
        return [(now - start[0]) / MILLI]

    api = "nvmlDeviceGetTotalEnergyConsumption, difference from the start"
    return Source(device.name, [Series(f"{device.name}/energy (J)", api, 1)], read, 0.5)


def _gpm(device: Device) -> tuple[list[Source], bool]:
    """GPM's metrics of a device, each the mean since the reading before; and whether it has any.

    A metric that fails is missing alone. Without GPM, the series that nothing else gives are there
    with the reason.
    """
    pynvml = nvml()
    try:
        if not query(pynvml.nvmlGpmQueryDeviceSupport, device.handle).isSupportedDevice:
            raise Unavailable("GPM is not supported by this GPU (Hopper or later)", permanent=True)
        return [_metrics(device)], True
    except Unavailable as error:
        reason = str(error)

    def read() -> list[float]:
        raise Unavailable(reason, permanent=True)

    names = [name for _, name, _ in METRICS if name.endswith("(%)")]
    series = [Series(f"{device.name}/{name}", "nvmlGpmMetricsGet") for name in names]
    return [Source(device.name, series, read, 0.5)], False


def _metrics(device: Device) -> Source:
    pynvml, handle = nvml(), device.handle
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(METRICS)
    for metric, (number, _, _) in zip(request.metrics, METRICS, strict=False):
        metric.metricId = number

    def cell(metric: Any, field: str, kind: Any) -> Any:
        return kind.from_buffer(metric, getattr(type(metric), field).offset)

    # Numbers that share the request's memory: pynvml's structures are slow to look into.
    cells = [
        (cell(metric, "value", ctypes.c_double), cell(metric, "nvmlReturn", ctypes.c_uint))
        for metric in request.metrics[: len(METRICS)]
    ]
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
    nvlink = [
        (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ALL_LINKS),
        (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, ALL_LINKS),
    ]
    excuse = "; the other way, nvmlDeviceGetPcieThroughput, blocks for 20 ms and is not used"
    return [
        _counters(device, "PCIe", pcie, 2**20, excuse),
        _counters(device, "NVLink", nvlink, 2**10, ""),
    ]


def _counters(device: Device, bus: str, fields: list[Any], per_mib: int, excuse: str) -> Source:
    """MiB/s from two counters that only grow; the rate is that since the reading before."""
    names = [f"{bus} sent (MiB/s)", f"{bus} received (MiB/s)"]
    api = f"nvmlDeviceGetFieldValues {fields}, difference over time"
    series = [Series(f"{device.name}/{name}", api) for name in names]
    rates = per_second(per_mib)

    def read() -> list[float | None]:
        try:
            return rates(field_values(device.handle, fields))
        except Unavailable as error:
            error.args = (f"{error}{excuse}",)
            # What a driver does not know, it will not learn.
            error.permanent |= error.code == nvml().NVML_ERROR_INVALID_ARGUMENT
            raise

    return Source(device.name, series, read, 0.5)
