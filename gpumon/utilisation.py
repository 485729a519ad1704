"""This module reads GPU utilisation, polled or from the driver's sample buffer.

The figure is the share of the driver's last 1/6 s to 1 s in which at least one kernel ran.
Asked as often as that, the figure itself is all there is. Asked more seldom, it would be one
moment treated as all, so then the mean of what the driver's buffer holds since the last sample is
used, where the driver has that buffer.
"""

from __future__ import annotations

from ctypes import byref
from statistics import median
from typing import Any

from gpumon.compat import pairwise, zip_strict
from gpumon.memory_arena import allocate
from gpumon.nvml import Device, nvml, poll, query, struct_field
from gpumon.sampling_gaps import LONGEST
from gpumon.series import Number, Series, Source, Unavailable

NAMES = ("utilisation (%)", "memory utilisation (%)")
BUFFER_FROM = 0.25
SLOWEST = 1.0
"""Seconds between two samples of the slowest driver."""
NOT_FOUND = 6


def utilisation_source(device: Device, interval: float) -> Source:
    """GPU and memory-controller utilisation of a device, for a sampler with that interval."""
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
            gaps = [b - a for a, b in pairwise(stamps) if b > a]
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
            for name, cadence in zip_strict(NAMES, cadences)
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
