"""GPM: what the multiprocessors really did, on Hopper and later.

"GPU utilisation" only says that some kernel ran; these counters say how many of the
multiprocessors worked, how full they were, and what the tensor cores and the memory did. NVML
gives them as the difference of two samples of the hardware's counters, each metric with its own
return code.
"""

from __future__ import annotations

from typing import Any

from gpumon.nvml import Device, ask, nvml
from gpumon.series import Series, Source, Unavailable

# NVML asks for some time between the two samples of a difference.
SHORTEST = 0.1

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
    support = ask(nvml().nvmlGpmQueryDeviceSupport, device.parent or device.handle)
    if not support.isSupportedDevice:
        raise Unavailable("GPM is not supported by this GPU (Hopper or later)", permanent=True)


def gpm_source(device: Device) -> Source:
    """All GPM metrics of a device in one call; a metric that fails is missing alone."""
    pynvml = nvml()
    series = [
        Series(f"{device.name}/{name}", f"nvmlGpmMetricsGet, metric {number}", digits)
        for number, name, digits in METRICS
    ]
    samples: list[Any] = []
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(METRICS)
    for place, (number, _, _) in enumerate(METRICS):
        request.metrics[place].metricId = number

    def take(sample: Any) -> None:
        if device.parent is None:
            ask(pynvml.nvmlGpmSampleGet, device.handle, sample)
        else:
            ask(pynvml.nvmlGpmMigSampleGet, device.parent, device.instance, sample)

    def read() -> list[float | Unavailable | None]:
        if not samples:
            samples.extend(ask(pynvml.nvmlGpmSampleAlloc) for _ in range(2))
            take(samples[0])
            return [None] * len(METRICS)
        take(samples[1])
        request.sample1, request.sample2 = samples
        ask(pynvml.nvmlGpmMetricsGet, request)
        samples.reverse()
        return [_value(pynvml, metric) for metric in request.metrics[: len(METRICS)]]

    return Source(device.name, series, read, SHORTEST)


def _value(pynvml: Any, metric: Any) -> float | Unavailable:
    if metric.nvmlReturn == pynvml.NVML_SUCCESS:
        return float(metric.value)
    return Unavailable(f"nvmlGpmMetricsGet: {pynvml.NVMLError(metric.nvmlReturn)}")
