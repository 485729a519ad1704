"""This module defines the series of one GPU, and reads them through NVML.

One source is one call into the driver; the sampler separates them, so that a call that fails
makes its own series NaN and no other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from ctypes import byref, c_uint, c_ulonglong
from typing import Any

from gpumon.gpu_activity import (
    LONGER,
    METRICS,
    gpm_sources,
    gpm_supported,
    link_sources,
    utilisation_source,
)
from gpumon.gpu_events import sharing_sources
from gpumon.nvml import Device, nvml, poll, struct_field
from gpumon.series import Number, Poll, Series, Source, Unavailable, allocate

MIB = 2**20
MILLI = 1000


def gpu_sources(
    device: Device, interval: float, own_processes: Callable[[], set[int]]
) -> list[Source]:
    """Every source of a device, unprobed; one that cannot be recorded has none.

    own_processes: the process numbers of the recorded program.
    """
    if device.handle is None:
        return []
    common = [
        _power(device),
        _energy(device),
        _temperature(device),
        _clock(device, "SM clock (MHz)", nvml().NVML_CLOCK_SM),
        _clock(device, "memory clock (MHz)", nvml().NVML_CLOCK_MEM),
        _throttle(device),
    ]
    sources = [
        utilisation_source(device, interval),
        _memory(device),
        *common,
        *sharing_sources(device, own_processes),
    ]
    try:
        gpm_supported(device)
    except Unavailable as error:
        return sources + link_sources(device) + [_no_gpm(device, str(error))]
    return [*sources, *gpm_sources(device)]


def _no_gpm(device: Device, reason: str) -> Source:
    """The series that only GPM has, so that the trace says why they are missing."""

    def read() -> list[float]:
        raise Unavailable(reason, permanent=True)

    names = [name for _, name, _ in METRICS if name.endswith("(%)")]
    series = [Series(f"{device.name}/{name}", "nvmlGpmMetricsGet") for name in names]
    return Source(device.name, series, read, LONGER)


def _polled(
    device: Device, name: str, api: str, poll: Poll, *, digits: int = 0, every: float = 0.0
) -> Source:
    series = [Series(f"{device.name}/{name}", api, digits)]
    return Source(device.name, series, poll.read, every, poll=poll)


def _memory(device: Device) -> Source:
    pynvml = nvml()
    # Version 2 leaves out what the driver reserves for itself, as nvidia-smi does.
    info = allocate(pynvml.c_nvmlMemory_v2_t, version=pynvml.nvmlMemory_v2)
    api = name = "nvmlDeviceGetMemoryInfo_v2"
    try:
        poll(name, device.handle, byref(info), numbers=[]).read()
    except Unavailable:
        info, name = allocate(pynvml.c_nvmlMemory_t), "nvmlDeviceGetMemoryInfo"
        api = f"{name} (counts the driver's reserve as used)"
    used = Number(struct_field(info, "used"), MIB)
    asked = poll(name, device.handle, byref(info), numbers=[used])
    # Frameworks' allocators keep what they took: asked more often, it would say the same.
    return _polled(device, "memory used (MiB)", api, asked, every=0.5)


def _power(device: Device) -> Source:
    """Power now where the driver has it, else its own figure, which may be a mean of 1 s."""
    pynvml = nvml()
    field = getattr(pynvml, "NVML_FI_DEV_POWER_INSTANT", 186)
    asked = allocate(pynvml.c_nvmlFieldValue_t, fieldId=field)
    # The call succeeds, whatever became of the field.
    now = Number(
        struct_field(asked, "value", c_uint), MILLI, code=struct_field(asked, "nvmlReturn")
    )
    name = "nvmlDeviceGetFieldValues"
    instant = poll(name, device.handle, 1, byref(asked), numbers=[now])
    try:
        instant.read()
        api = f"{name} {field} (instant power)"
        return _polled(device, "power (W)", api, instant, digits=1)
    except Unavailable:
        milliwatts, name = allocate(c_uint), "nvmlDeviceGetPowerUsage"
        usual = poll(name, device.handle, byref(milliwatts), numbers=[Number(milliwatts, MILLI)])
        api = f"{name} (a mean over 1 s on Ampere and later)"
        return _polled(device, "power (W)", api, usual, digits=1)


def _energy(device: Device) -> Source:
    """Joules since the trace began. The counter itself runs since the driver was loaded."""
    millijoules, name = allocate(c_ulonglong), "nvmlDeviceGetTotalEnergyConsumption"
    since = Number(millijoules, MILLI, start=None)
    count = poll(name, device.handle, byref(millijoules), numbers=[since])
    return _polled(device, "energy (J)", f"{name}, difference from the start", count, digits=1)


def _temperature(device: Device) -> Source:
    pynvml = nvml()
    kind = pynvml.NVML_TEMPERATURE_GPU
    celsius = allocate(c_uint)
    api, filled = "nvmlDeviceGetTemperature", celsius
    arguments: tuple[Any, ...] = (kind, byref(celsius))
    newer = getattr(pynvml, "c_nvmlTemperature_v1_t", None)
    if newer is not None:
        # The older call is to go with CUDA 14.
        asked = allocate(newer, version=pynvml.nvmlTemperature_v1, sensorType=kind)
        name = "nvmlDeviceGetTemperatureV"
        with contextlib.suppress(Unavailable):
            poll(name, device.handle, byref(asked), numbers=[]).read()
            api, arguments, filled = name, (byref(asked),), struct_field(asked, "temperature")
    read = poll(api, device.handle, *arguments, numbers=[Number(filled)])
    return _polled(device, "temperature (C)", api, read, every=1.0)


def _throttle(device: Device) -> Source:
    """Why the clocks are not higher, as NVML's bits; see gpumon.words.reasons."""
    bits, name = allocate(c_ulonglong), "nvmlDeviceGetCurrentClocksEventReasons"
    try:
        poll(name, device.handle, byref(bits), numbers=[]).read()
    except Unavailable:
        # Its name before driver 535, which is to go with CUDA 14.
        name = "nvmlDeviceGetCurrentClocksThrottleReasons"
    asked = poll(name, device.handle, byref(bits), numbers=[Number(bits)])
    return _polled(device, "throttle reasons (bits)", name, asked, every=0.5)


def _clock(device: Device, series: str, number: int) -> Source:
    megahertz, name = allocate(c_uint), "nvmlDeviceGetClockInfo"
    asked = poll(name, device.handle, number, byref(megahertz), numbers=[Number(megahertz)])
    return _polled(device, series, name, asked, every=0.5)
