"""This module reads what a GPU does: utilisation, SM activity, and traffic over its links."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from ctypes import byref
from statistics import median
from typing import Any

from gpumon.nvml import Device, call, failure, field_values, nvml, poll, query, struct_field
from gpumon.series import Number, Poll, Series, Source, Unavailable, allocate
from gpumon.stats import LONGEST

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
    kinds = (
        getattr(pynvml, "NVML_GPU_UTILIZATION_SAMPLES", 1),
        getattr(pynvml, "NVML_MEMORY_UTILIZATION_SAMPLES", 2),
    )
    seen = [0, 0]
    cadences: list[float | None] = [None, None]
    try:
        for place, kind in enumerate(kinds):
            stamps = [stamp for stamp, _ in _fresh(device, kind, seen, place)]
            gaps = [b - a for a, b in zip(stamps, stamps[1:]) if b > a]
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

    polled = None
    api = "nvmlDeviceGetSamples, mean of the driver's samples since the reading before"
    if not buffers:
        api = "nvmlDeviceGetUtilizationRates"
        rates = allocate(pynvml.c_nvmlUtilization_t)
        numbers = [Number(struct_field(rates, "gpu")), Number(struct_field(rates, "memory"))]
        polled = poll(api, device.handle, byref(rates), numbers=numbers)
    return Source(
        device.name,
        [
            Series(f"{device.name}/{name}", api, int(buffers), cadence=cadence)
            for name, cadence in zip(NAMES, cadences)
        ],
        polled.read if polled else buffered,
        poll=polled,
    )


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


def gpm_supported(device: Device) -> None:
    """Raise Unavailable, with the reason, where a device has no GPM."""
    support = query(nvml().nvmlGpmQueryDeviceSupport, device.handle)
    if not support.isSupportedDevice:
        raise Unavailable("GPM is not supported by this GPU (Hopper or later)", permanent=True)


def gpm_sources(device: Device) -> list[Source]:
    """GPM's metrics of a device; each reading is the mean since the one before.

    SM activity is what charts and figures need at every sample. A metric that fails is missing
    alone.
    """
    return [_metrics(device, METRICS[:1], SHORTEST), _metrics(device, METRICS[1:], LONGER)]


def _metrics(device: Device, metrics: Sequence[tuple[int, str, int]], every: float) -> Source:
    pynvml = nvml()
    series = [
        Series(f"{device.name}/{name}", f"nvmlGpmMetricsGet, metric {number}", digits)
        for number, name, digits in metrics
    ]
    get: tuple[Any, ...] = ("nvmlGpmSampleGet", device.handle)
    samples: list[Any] = []

    def begin() -> Poll:
        """Take the first sample: of two that take turns, each difference ends with the older."""
        samples[:] = samples or [query(pynvml.nvmlGpmSampleAlloc) for _ in range(2)]
        function, arguments = call(*get, samples[0])
        if code := function(*arguments):
            raise _failed(code)
        one, other = (
            _difference(get, older, newer, [metric for metric, _, _ in metrics])
            for older, newer in (samples, samples[::-1])
        )
        one.alternate, other.alternate = other, one
        return one

    def read() -> Sequence[float | Unavailable | None]:
        poll = source.poll
        if poll is None:
            source.poll = begin()
            return [None] * len(series)
        poll.make()
        # Not where a call failed: the next difference would begin with a sample not taken.
        source.poll = poll.alternate
        return poll.filled()

    source = Source(device.name, series, read, every)
    return source


def _difference(sample: tuple[Any, ...], older: Any, newer: Any, metrics: Sequence[int]) -> Poll:
    """The calls that take a newer sample, and the metrics between the two.

    sample: the function that takes one, and of what.
    """
    pynvml = nvml()
    request = allocate(pynvml.c_nvmlGpmMetricsGet_t)
    request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(metrics)
    request.sample1, request.sample2 = older, newer
    numbers = []
    for metric, number in zip(request.metrics, metrics):
        metric.metricId = number
        numbers.append(
            Number(struct_field(metric, "value"), code=struct_field(metric, "nvmlReturn"))
        )
    calls = [call(*sample, newer), call("nvmlGpmMetricsGet", ctypes.byref(request))]
    return Poll(calls, numbers, _failed)


def _failed(code: int) -> Unavailable:
    return failure("GPM", code)


def link_sources(device: Device) -> list[Source]:
    pynvml = nvml()
    return [
        _counters(
            device,
            "PCIe",
            [
                getattr(pynvml, "NVML_FI_DEV_PCIE_COUNT_TX_BYTES", 197),
                getattr(pynvml, "NVML_FI_DEV_PCIE_COUNT_RX_BYTES", 198),
            ],
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
                for new, was in zip(counts, old)
            ]
        before[:] = [(now, counts)]
        return rates

    return Source(device.name, series, read, 0.5)
