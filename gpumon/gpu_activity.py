"""This module reads what a GPU does: utilisation, SM activity, and traffic over its links."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import Any

from gpumon.nvml import Device, failure, field_values, nvml, query
from gpumon.series import Series, Source, Unavailable

NAMES = ("utilisation (%)", "memory utilisation (%)")
# NVML asks for 0.1 s at least between the two samples of a difference, and ticks may come early.
SHORTEST = 0.2
LONGER = 0.5
"""Seconds that the metrics are a mean of which no figure and no usual lane needs more often."""
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


def utilisation_source(device: Device) -> Source:
    """GPU and memory-controller utilisation of a device.

    The figure is the share of the driver's last 1/6 s to 1 s in which at least one kernel ran.
    """
    ask = nvml().nvmlDeviceGetUtilizationRates

    def read() -> list[float]:
        rates = query(ask, device.handle)
        return [rates.gpu, rates.memory]

    series = [Series(f"{device.name}/{name}", ask.__name__) for name in NAMES]
    return Source(device.name, series, read)


def gpm_sources(device: Device) -> tuple[list[Source], bool]:
    """GPM's metrics of a device, each the mean since the reading before; and whether it has any.

    SM activity is what charts and figures need most often. A metric that fails is missing
    alone. Without GPM, the series that nothing else gives are there with the reason.
    """
    pynvml = nvml()
    try:
        if not query(pynvml.nvmlGpmQueryDeviceSupport, device.handle).isSupportedDevice:
            raise Unavailable("GPM is not supported by this GPU (Hopper or later)", permanent=True)
        groups = (METRICS[:1], SHORTEST), (METRICS[1:], LONGER)
        return [_metrics(device, metrics, every) for metrics, every in groups], True
    except Unavailable as error:
        reason = error

    def read() -> list[float]:
        raise Unavailable(str(reason), permanent=True)

    names = [name for _, name, _ in METRICS if name.endswith("(%)")]
    series = [Series(f"{device.name}/{name}", "nvmlGpmMetricsGet") for name in names]
    return [Source(device.name, series, read, LONGER)], False


def _metrics(device: Device, metrics: Sequence[tuple[int, str, int]], every: float) -> Source:
    pynvml = nvml()
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(metrics)
    for metric, (number, _, _) in zip(request.metrics, metrics, strict=False):
        metric.metricId = number
    # Numbers that share the request's memory: pynvml's structures are slow to look into.
    cells = [
        (_cell(metric, "value", ctypes.c_double), _cell(metric, "nvmlReturn", ctypes.c_uint))
        for metric in request.metrics[: len(metrics)]
    ]
    samples = [query(pynvml.nvmlGpmSampleAlloc) for _ in range(2)]
    taken = [False]

    def read() -> list[float | Unavailable | None]:
        query(pynvml.nvmlGpmSampleGet, device.handle, samples[1])
        request.sample1, request.sample2 = samples
        samples.reverse()
        if not taken[0]:
            taken[0] = True
            return [None] * len(metrics)
        query(pynvml.nvmlGpmMetricsGet, request)
        if all(code.value for _, code in cells):
            raise failure("GPM", cells[0][1].value)
        return [failure("GPM", code.value) if code.value else cell.value for cell, code in cells]

    series = [
        Series(f"{device.name}/{name}", f"nvmlGpmMetricsGet, metric {number}", digits)
        for number, name, digits in metrics
    ]
    return Source(device.name, series, read, every)


def _cell(structure: Any, field: str, kind: Any) -> Any:
    return kind.from_buffer(structure, getattr(type(structure), field).offset)


def link_sources(device: Device) -> list[Source]:
    pynvml = nvml()
    return [
        _counters(
            device,
            "PCIe",
            [pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES],
            2**20,
            "; the other way, nvmlDeviceGetPcieThroughput, blocks for 20 ms and is not used",
        ),
        _counters(
            device,
            "NVLink",
            [
                (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ALL_LINKS),
                (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, ALL_LINKS),
            ],
            2**10,
            "",
        ),
    ]


def _counters(device: Device, bus: str, fields: list[Any], per_mib: int, excuse: str) -> Source:
    """MiB/s from two counters that only grow; the rate is that since the reading before."""
    pynvml = nvml()
    names = [f"{bus} sent (MiB/s)", f"{bus} received (MiB/s)"]
    api = f"nvmlDeviceGetFieldValues {fields}, difference over time"
    series = [Series(f"{device.name}/{name}", api) for name in names]
    before: list[tuple[float, list[int]]] = []

    def read() -> list[float | None]:
        try:
            counts = field_values(device.handle, fields)
        except Unavailable as error:
            error.args = (f"{error}{excuse}",)
            # What a driver does not know, it will not learn.
            error.permanent |= error.code == pynvml.NVML_ERROR_INVALID_ARGUMENT
            raise
        now = time.monotonic()
        rates: list[float | None] = [None, None]
        if before and now > before[0][0]:
            then, old = before[0]
            rates = [
                (new - was) / per_mib / (now - then) if new >= was else None
                for new, was in zip(counts, old, strict=True)
            ]
        before[:] = [(now, counts)]
        return rates

    return Source(device.name, series, read, 0.5)
