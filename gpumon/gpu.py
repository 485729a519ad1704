"""The series of one GPU, each read through NVML by a source of its own.

One source is one call into the driver; the sampler keeps them apart, so that a call that fails
makes its own series NaN and no other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from ctypes import byref, c_uint, c_ulonglong
from typing import Any

from gpumon.gpm import ACTIVITY, LONGER, METRICS, gpm_sources, gpm_supported
from gpumon.hardware import hardware_sources
from gpumon.links import link_sources
from gpumon.nvml import Device, ask, call, nvml, within
from gpumon.series import Series, Source, Unavailable
from gpumon.sharing import sharing_sources
from gpumon.utilisation import utilisation_source

MIB = 2**20


def gpu_sources(device: Device, interval: float, mine: Callable[[], set[int]]) -> list[Source]:
    """Every source of a device, unprobed; an unreachable device has none.

    mine: the numbers of the watched program's processes.
    """
    if device.handle is None:
        return []
    whole = [
        _power(device),
        _energy(device),
        _temperature(device),
        _clocks(device),
        _throttle(device),
    ]
    if device.kind != "mig":
        whole += hardware_sources(device)
    if device.kind == "parent":
        return whole  # the rest its instances tell
    sources = [
        utilisation_source(device, interval),
        _memory(device),
        *whole,
        *sharing_sources(device, mine),
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

    names = [name for _, name, _ in ACTIVITY + METRICS if name.endswith("(%)")]
    return _source(device, names, "nvmlGpmMetricsGet", read, every=LONGER)


def _source(
    device: Device,
    names: list[str],
    api: str,
    read: Callable[[], Any],
    *,
    digits: int = 0,
    every: float = 0.0,
) -> Source:
    series = [Series(f"{device.name}/{name}", api, digits) for name in names]
    return Source(device.name, series, read, every)


def _memory(device: Device) -> Source:
    pynvml = nvml()
    # Version 2 leaves out what the driver reserves for itself, as nvidia-smi does.
    info = pynvml.c_nvmlMemory_v2_t(version=pynvml.nvmlMemory_v2)
    api = name = "nvmlDeviceGetMemoryInfo_v2"
    try:
        call(name, device.handle, byref(info))()
    except Unavailable:
        info, name = pynvml.c_nvmlMemory_t(), "nvmlDeviceGetMemoryInfo"
        api = f"{name} (counts the driver's reserve as used)"
    used, ask_it = within(info, "used"), call(name, device.handle, byref(info))

    def read() -> tuple[float]:
        ask_it()
        return (used.value / MIB,)

    return _source(device, ["memory used (MiB)"], api, read)


def _power(device: Device) -> Source:
    """Power now where the driver has it, else its own figure, which may be a mean of 1 s."""
    pynvml = nvml()
    field = getattr(pynvml, "NVML_FI_DEV_POWER_INSTANT", 186)
    asked = pynvml.c_nvmlFieldValue_t(fieldId=field)
    code, found = within(asked, "nvmlReturn"), within(asked, "value")
    ask_field = call("nvmlDeviceGetFieldValues", device.handle, 1, byref(asked))
    milliwatts = c_uint()
    ask_usage = call("nvmlDeviceGetPowerUsage", device.handle, byref(milliwatts))

    def instant() -> tuple[float]:
        ask_field()
        if code.value:
            raise Unavailable(f"field {field}: {pynvml.NVMLError(code.value)}")
        return (found.uiVal / 1000,)

    def usual() -> tuple[float]:
        ask_usage()
        return (milliwatts.value / 1000,)

    read, api = instant, f"nvmlDeviceGetFieldValues {field} (instant power)"
    try:
        instant()
    except Unavailable:
        read = usual
        api = "nvmlDeviceGetPowerUsage (a mean over 1 s on Ampere and later)"
    return _source(device, ["power (W)"], api, read, digits=1)


def _energy(device: Device) -> Source:
    """Joules since the trace began. The counter itself runs since the driver was loaded."""
    millijoules = c_ulonglong()
    count = call("nvmlDeviceGetTotalEnergyConsumption", device.handle, byref(millijoules))
    first: list[int] = []

    def read() -> tuple[float]:
        count()
        if not first:
            first.append(millijoules.value)
        return ((millijoules.value - first[0]) / 1000,)

    return _source(
        device,
        ["energy (J)"],
        "nvmlDeviceGetTotalEnergyConsumption, difference from the start",
        read,
        digits=1,
    )


def _temperature(device: Device) -> Source:
    pynvml = nvml()
    call, api = pynvml.nvmlDeviceGetTemperature, "nvmlDeviceGetTemperature"
    newer = getattr(pynvml, "nvmlDeviceGetTemperatureV", None)
    if newer is not None:
        # The older call is to go with CUDA 14.
        with contextlib.suppress(Unavailable):
            ask(newer, device.handle, pynvml.NVML_TEMPERATURE_GPU)
            call, api = newer, "nvmlDeviceGetTemperatureV"

    def read() -> tuple[float]:
        return (ask(call, device.handle, pynvml.NVML_TEMPERATURE_GPU),)

    return _source(device, ["temperature (C)"], api, read, every=1.0)


def _throttle(device: Device) -> Source:
    """Why the clocks are not higher, as NVML's bits; see gpumon.throttle.reasons."""
    pynvml = nvml()
    call = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons
    newer = getattr(pynvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    if newer is not None:
        # Its new name since driver 535; the old one is to go with CUDA 14.
        with contextlib.suppress(Unavailable):
            ask(newer, device.handle)
            call = newer

    def read() -> tuple[float]:
        return (ask(call, device.handle),)

    return _source(device, ["throttle reasons (bits)"], call.__name__, read, every=0.5)


def _clocks(device: Device) -> Source:
    pynvml = nvml()

    def read() -> tuple[float, float]:
        clock = pynvml.nvmlDeviceGetClockInfo
        return (
            ask(clock, device.handle, pynvml.NVML_CLOCK_SM),
            ask(clock, device.handle, pynvml.NVML_CLOCK_MEM),
        )

    return _source(
        device, ["SM clock (MHz)", "memory clock (MHz)"], "nvmlDeviceGetClockInfo", read, every=0.5
    )
