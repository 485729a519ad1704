"""This module reads what a GPU does: utilisation, SM activity, and traffic over its links."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

from gpumon.nvml import Device, failure, field_values, nvml, query
from gpumon.series import Series, Source, Unavailable
from gpumon.trace_format import LONGEST

NAMES = ("utilisation (%)", "memory utilisation (%)")
BUFFER_FROM = 0.25
SLOWEST = 1.0
"""Seconds between two samples of the slowest driver."""
NOT_FOUND = 6
# NVML asks for some time between the two samples of a difference.
SHORTEST = 0.1
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


def utilisation_source(device: Device, interval: float) -> Source:
    """GPU and memory-controller utilisation of a device, for a sampler with that interval.

    The figure is the share of the driver's last 1/6 s to 1 s in which at least one kernel ran. A
    slower sampler would take one such moment for its whole interval, so it uses the mean of the
    driver's buffered samples since its last reading, where the driver has that buffer.
    """
    pynvml = nvml()
    kinds = (pynvml.NVML_GPU_UTILIZATION_SAMPLES, pynvml.NVML_MEMORY_UTILIZATION_SAMPLES)
    seen = [0, 0]
    cadences: list[float | None] = [None, None]
    try:
        for place, kind in enumerate(kinds):
            stamps = [stamp for stamp, _ in _fresh(device, kind, seen, place)]
            gaps = [b - a for a, b in itertools.pairwise(stamps) if b > a]
            cadences[place] = round(median(gaps) / 1e6, 4) if gaps else None
        buffers = interval >= BUFFER_FROM
    except Unavailable:
        buffers = False

    held: list[float | None] = [None, None]
    stale = [0, 0]
    # For that many readings the last mean may stand for what the driver has not added yet.
    most = max(LONGEST, round(SLOWEST / interval))

    def buffered() -> list[float | None]:
        for place, kind in enumerate(kinds):
            values = [value for _, value in _fresh(device, kind, seen, place)]
            stale[place] = 0 if values else stale[place] + 1
            if values:
                held[place] = sum(values) / len(values)
            elif stale[place] > most:
                held[place] = None
        return list(held)

    def now() -> list[float | None]:
        rates = query(pynvml.nvmlDeviceGetUtilizationRates, device.handle)
        return [rates.gpu, rates.memory]

    api = "nvmlDeviceGetUtilizationRates"
    if buffers:
        api = "nvmlDeviceGetSamples, mean of the driver's samples since the reading before"
    series = [
        Series(f"{device.name}/{name}", api, int(buffers), cadence=cadence)
        for name, cadence in zip(NAMES, cadences, strict=True)
    ]
    return Source(device.name, series, buffered if buffers else now)


def _fresh(device: Device, kind: int, seen: list[int], place: int) -> list[tuple[int, float]]:
    """The driver's samples (microseconds, percent) since the last one seen; often none."""
    pynvml = nvml()
    try:
        _, samples = query(pynvml.nvmlDeviceGetSamples, device.handle, kind, seen[place])
    except Unavailable as error:
        if error.code == NOT_FOUND:
            return []
        raise
    fresh: list[Any] = [sample for sample in samples if sample.timeStamp > seen[place]]
    if fresh:
        seen[place] = max(int(sample.timeStamp) for sample in fresh)
    return [(int(sample.timeStamp), float(sample.sampleValue.uiVal)) for sample in fresh]


def gpm_sources(device: Device) -> tuple[list[Source], bool]:
    """GPM's metrics of a device, each the mean since the reading before; and whether it has any.

    SM activity is what charts and figures need at every sample. A metric that fails is missing
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
    asked = [request.metrics[place] for place in range(len(metrics))]
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
        values = [
            failure("GPM", metric.nvmlReturn) if metric.nvmlReturn else metric.value
            for metric in asked
        ]
        failed = [value for value in values if isinstance(value, Unavailable)]
        if len(failed) == len(values):
            raise failed[0]
        return values

    series = [
        Series(f"{device.name}/{name}", f"nvmlGpmMetricsGet, metric {number}", digits)
        for number, name, digits in metrics
    ]
    return Source(device.name, series, read, every)


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
