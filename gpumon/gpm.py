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
from gpumon.nvml import Device, ask, failure, function_of, nvml, within
from gpumon.series import Number, Poll, Series, Source, Unavailable

# NVML asks for some time between the two samples of a difference.
SHORTEST = 0.1
LONGER = 0.5
"""Seconds that the metrics are a mean of which no figure and no usual lane needs more often."""

NO_CODE = ctypes.c_uint(0)

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


def gpm_sources(device: Device) -> list[Source]:
    """GPM's metrics of a device; each reading is the mean since the one before."""
    return [_activity(device), _rest(device)]


def _activity(device: Device) -> Source:
    """SM activity, which charts and figures need at every sample."""
    ((number, name, digits),) = METRICS[:1]
    request, take, compare = _comparison(device, [number])
    code, cell = (within(request.metrics[0], field) for field in ("nvmlReturn", "value"))
    poll = Poll(compare, (code,), [Number(cell)], _failed)
    series = [Series(f"{device.name}/{name}", f"nvmlGpmMetricsGet, metric {number}", digits)]

    def read() -> Sequence[float | None]:
        return [None] if take() else poll.read()

    return Source(device.name, series, read, SHORTEST, poll=poll)


def _rest(device: Device) -> Source:
    """The other metrics in one call; one that fails is missing alone."""
    series = [
        Series(f"{device.name}/{name}", f"nvmlGpmMetricsGet, metric {number}", digits)
        for number, name, digits in METRICS[1:]
    ]
    request, take, compare = _comparison(device, [number for number, _, _ in METRICS[1:]])
    # Every metric's return code and value, in place of a structure for each.
    metric = type(request.metrics[0])
    tail = ctypes.sizeof(metric) - metric.value.offset - ctypes.sizeof(ctypes.c_double)
    layout = Struct("=" + f"4xId{tail}x" * len(series))
    start = type(request).metrics.offset

    def read() -> Sequence[float | Unavailable | None]:
        if take():
            return [None] * len(series)
        if code := compare():
            raise _failed(code)
        found = layout.unpack_from(request, start)
        codes, values = found[::2], found[1::2]
        if not any(codes):
            return values
        return [_failed(c) if c else value for c, value in strictly(codes, values)]

    return Source(device.name, series, read, LONGER)


def _comparison(
    device: Device, metrics: Sequence[int]
) -> tuple[Any, Callable[[], bool], Callable[..., int]]:
    """A request for metrics, what takes its first sample (once), and what fills it from then on.

    The last of them gives NVML's code, or that of the metric whose return code it is given.
    """
    pynvml = nvml()
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(metrics)
    for place, number in enumerate(metrics):
        request.metrics[place].metricId = number
    older, newer = (within(request, name, ctypes.c_void_p) for name in ("sample1", "sample2"))
    sample: Callable[..., int] = function_of("nvmlGpmSampleGet")
    of: tuple[Any, ...] = (device.handle,)
    if device.parent is not None:
        sample, of = function_of("nvmlGpmMigSampleGet"), (device.parent, device.instance)
    get, asked = function_of("nvmlGpmMetricsGet"), ctypes.byref(request)

    def take() -> bool:
        if older.value:
            return False
        first, second = (ask(pynvml.nvmlGpmSampleAlloc) for _ in range(2))
        if code := sample(*of, first):
            raise _failed(code)
        request.sample1, request.sample2 = first, second
        return True

    into = (*of, newer)

    def compare(code: Any = NO_CODE) -> int:
        if failed := sample(*into) or get(asked):
            return failed
        # The next difference begins where this one ended.
        older.value, newer.value = newer.value, older.value
        return int(code.value)

    return request, take, compare


def _failed(code: int) -> Unavailable:
    return failure("GPM", code)
