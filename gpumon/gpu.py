"""The series of one GPU, each read through NVML by a source of its own.

One source is one call into the driver; the sampler keeps them apart, so that a call that fails
makes its own series NaN and no other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpumon.nvml import Device, ask, nvml
from gpumon.series import Series, Source, Unavailable

MIB = 2**20


def gpu_sources(device: Device) -> list[Source]:
    """Every source of a device, unprobed; an unreachable device has none."""
    if device.handle is None:
        return []
    return [
        _utilisation(device),
        _memory(device),
        _power(device),
        _energy(device),
        _temperature(device),
        _clocks(device),
    ]


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


def _utilisation(device: Device) -> Source:
    pynvml = nvml()

    def read() -> tuple[float, float]:
        rates = ask(pynvml.nvmlDeviceGetUtilizationRates, device.handle)
        return rates.gpu, rates.memory

    return _source(
        device, ["utilisation (%)", "memory utilisation (%)"], "nvmlDeviceGetUtilizationRates", read
    )


def _memory(device: Device) -> Source:
    pynvml = nvml()
    # Version 2 leaves out what the driver reserves for itself, as nvidia-smi does.
    version = getattr(pynvml, "nvmlMemory_v2", None)
    api = "nvmlDeviceGetMemoryInfo_v2"
    try:
        ask(pynvml.nvmlDeviceGetMemoryInfo, device.handle, version)
    except Unavailable:
        version, api = None, "nvmlDeviceGetMemoryInfo (counts the driver's reserve as used)"

    def read() -> tuple[float]:
        return (ask(pynvml.nvmlDeviceGetMemoryInfo, device.handle, version).used / MIB,)

    return _source(device, ["memory used (MiB)"], api, read)


def _power(device: Device) -> Source:
    pynvml = nvml()

    def read() -> tuple[float]:
        return (ask(pynvml.nvmlDeviceGetPowerUsage, device.handle) / 1000,)

    return _source(device, ["power (W)"], "nvmlDeviceGetPowerUsage", read, digits=1)


def _energy(device: Device) -> Source:
    """Joules since the trace began. The counter itself runs since the driver was loaded."""
    pynvml = nvml()
    first: list[float] = []

    def read() -> tuple[float]:
        millijoules = ask(pynvml.nvmlDeviceGetTotalEnergyConsumption, device.handle)
        if not first:
            first.append(millijoules)
        return ((millijoules - first[0]) / 1000,)

    return _source(
        device,
        ["energy (J)"],
        "nvmlDeviceGetTotalEnergyConsumption, difference from the start",
        read,
        digits=1,
    )


def _temperature(device: Device) -> Source:
    pynvml = nvml()

    def read() -> tuple[float]:
        return (ask(pynvml.nvmlDeviceGetTemperature, device.handle, pynvml.NVML_TEMPERATURE_GPU),)

    return _source(device, ["temperature (C)"], "nvmlDeviceGetTemperature", read, every=1.0)


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
