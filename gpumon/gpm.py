"""GPM: what the multiprocessors really did, on Hopper and later.

"GPU utilisation" only says that some kernel ran; these counters say how many of the
multiprocessors worked, how full they were, and what the tensor cores and the memory did. NVML
gives them as the difference of two samples of the hardware's counters, each metric with its own
return code.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

from gpumon.compat import strictly
from gpumon.nvml import Device, ask, call, nvml
from gpumon.series import Series, Source, Unavailable

# NVML asks for some time between the two samples of a difference.
SHORTEST = 0.1
LONGER = 0.5
"""Seconds that the metrics are a mean of which no figure and no usual lane needs more often."""

ACTIVITY = ((2, "SM activity (%)", 1),)
METRICS = (
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
    support = ask(nvml().nvmlGpmQueryDeviceSupport, device.parent or device.handle)
    if not support.isSupportedDevice:
        raise Unavailable("GPM is not supported by this GPU (Hopper or later)", permanent=True)


def gpm_sources(device: Device) -> list[Source]:
    """GPM's metrics of a device; each reading is the mean since the one before."""
    return [_source(device, ACTIVITY, SHORTEST), _source(device, METRICS, LONGER)]


def _source(device: Device, metrics: Sequence[tuple[int, str, int]], every: float) -> Source:
    """Metrics of a device in one call; a metric that fails is missing alone."""
    pynvml = nvml()
    series = [
        Series(f"{device.name}/{name}", f"nvmlGpmMetricsGet, metric {number}", digits)
        for number, name, digits in metrics
    ]
    samples: list[Any] = []
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(metrics)
    for place, (number, _, _) in enumerate(metrics):
        request.metrics[place].metricId = number
    # Every metric's return code and value, in place of a structure for each.
    metric = pynvml.c_nvmlGpmMetric_t
    rest = ctypes.sizeof(metric) - metric.value.offset - ctypes.sizeof(ctypes.c_double)
    layout = Struct("=" + f"4xId{rest}x" * len(metrics))
    start = type(request).metrics.offset
    compare = call("nvmlGpmMetricsGet", ctypes.byref(request))

    def take(sample: Any) -> Callable[[], None]:
        if device.parent is None:
            return call("nvmlGpmSampleGet", device.handle, sample)
        return call("nvmlGpmMigSampleGet", device.parent, device.instance, sample)

    takes: list[Callable[[], None]] = []

    def read() -> Sequence[float | Unavailable | None]:
        if not samples:
            samples.extend(ask(pynvml.nvmlGpmSampleAlloc) for _ in range(2))
            takes.extend(map(take, samples))
            takes[0]()
            return [None] * len(metrics)
        takes[1]()
        request.sample1, request.sample2 = samples
        compare()
        samples.reverse()
        takes.reverse()
        found = layout.unpack_from(request, start)
        codes, values = found[::2], found[1::2]
        if not any(codes):
            return values
        return [_failed(pynvml, c) if c else v for c, v in strictly(codes, values)]

    return Source(device.name, series, read, every)


def _failed(pynvml: Any, code: int) -> Unavailable:
    return Unavailable(f"nvmlGpmMetricsGet: {pynvml.NVMLError(code)}")
