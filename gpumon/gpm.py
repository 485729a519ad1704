"""This module reads NVIDIA's GPM counters, which measure SM activity on Hopper and later GPUs.

"GPU utilisation" only says that some kernel ran; these counters say how many of the
multiprocessors worked, how full they were, and what the tensor cores and the memory did. NVML
gives them as the difference of two samples of the hardware's counters, each metric with its own
return code.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from gpumon.memory_arena import allocate
from gpumon.nvml import Device, call, failure, nvml, query, struct_field
from gpumon.series import Number, Poll, Series, Source, Unavailable

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


def gpm_supported(device: Device) -> None:
    """Raise Unavailable, with the reason, where a device has no GPM."""
    support = query(nvml().nvmlGpmQueryDeviceSupport, device.parent or device.handle)
    if not support.isSupportedDevice:
        raise Unavailable("GPM is not supported by this GPU (Hopper or later)", permanent=True)
    if device.parent is not None and device.instance is None:
        raise Unavailable("the driver does not say which MIG instance it is", permanent=True)


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
    if device.parent is not None:
        get = ("nvmlGpmMigSampleGet", device.parent, device.instance)
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
