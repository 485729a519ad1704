"""This module defines the series of one GPU, and reads them through NVML.

One source is one call into the driver; the sampler separates them, so that a call that fails
makes its own series NaN and no other.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable

from gpumon.gpu_activity import gpm_sources, link_sources, utilisation_source
from gpumon.gpu_processes import sharing_sources
from gpumon.nvml import Device, field_values, nvml, query
from gpumon.series import Series, Source, Unavailable

MIB = 2**20
MILLI = 1000
Calls = dict[str, Callable[[], float]]
"""Ways to read one figure, the best first, by what the trace calls them."""


def gpu_sources(device: Device, own_processes: Callable[[], set[int]]) -> list[Source]:
    """Every source of a device, unprobed; one that cannot be recorded has none.

    own_processes: the process numbers of the recorded program.
    """
    if device.handle is None:
        return []
    metrics, has_metrics = gpm_sources(device)
    return [
        utilisation_source(device),
        _memory(device),
        _power(device),
        _energy(device),
        _temperature(device),
        _clock(device, "SM clock (MHz)", nvml().NVML_CLOCK_SM),
        _clock(device, "memory clock (MHz)", nvml().NVML_CLOCK_MEM),
        _throttle(device),
        *sharing_sources(device, own_processes),
        *([] if has_metrics else link_sources(device)),
        *metrics,
    ]


def _figure(
    device: Device, name: str, calls: Calls, *, digits: int = 0, every: float = 0.0
) -> Source:
    """A source of one figure, by the first of the calls that this driver answers, or the last."""
    *better, (api, read) = calls.items()
    for name_of, call in better:
        with contextlib.suppress(Unavailable):
            call()
            api, read = name_of, call
            break
    series = [Series(f"{device.name}/{name}", api, digits)]
    return Source(device.name, series, lambda: [read()], every)


def _memory(device: Device) -> Source:
    pynvml, handle = nvml(), device.handle
    ask = pynvml.nvmlDeviceGetMemoryInfo
    # Version 2 leaves out what the driver reserves for itself, as nvidia-smi does.
    calls: Calls = {
        "nvmlDeviceGetMemoryInfo_v2": lambda: query(ask, handle, pynvml.nvmlMemory_v2).used / MIB,
        "nvmlDeviceGetMemoryInfo (counts the driver's reserve as used)": (
            lambda: query(ask, handle).used / MIB
        ),
    }
    # Frameworks' allocators keep what they took: asked more often, it would say the same.
    return _figure(device, "memory used (MiB)", calls, every=0.5)


def _power(device: Device) -> Source:
    """Power now where the driver has it, else its own figure, which may be a mean of 1 s."""
    pynvml, handle = nvml(), device.handle
    field = pynvml.NVML_FI_DEV_POWER_INSTANT
    calls: Calls = {
        f"nvmlDeviceGetFieldValues {field} (instant power)": (
            lambda: field_values(handle, [field], "uiVal")[0] / MILLI
        ),
        "nvmlDeviceGetPowerUsage (a mean over 1 s on Ampere and later)": (
            lambda: query(pynvml.nvmlDeviceGetPowerUsage, handle) / MILLI
        ),
    }
    return _figure(device, "power (W)", calls, digits=1)


def _energy(device: Device) -> Source:
    """Joules since the trace began. The counter itself runs since the driver was loaded."""
    count, start = nvml().nvmlDeviceGetTotalEnergyConsumption, list[int]()

    def read() -> list[float]:
        now = query(count, device.handle)
        start[:] = start or [now]
        return [(now - start[0]) / MILLI]

    api = "nvmlDeviceGetTotalEnergyConsumption, difference from the start"
    return Source(device.name, [Series(f"{device.name}/energy (J)", api, 1)], read)


def _temperature(device: Device) -> Source:
    pynvml = nvml()
    kind = pynvml.NVML_TEMPERATURE_GPU
    # The older call is to go with CUDA 14.
    calls: Calls = {
        name: functools.partial(query, getattr(pynvml, name), device.handle, kind)
        for name in ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature")
    }
    return _figure(device, "temperature (C)", calls, every=1.0)


def _throttle(device: Device) -> Source:
    """Why the clocks are not higher, as NVML's bits; see gpumon.words.reasons."""
    pynvml = nvml()
    # The second name is that before driver 535, which is to go with CUDA 14.
    names = "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
    calls: Calls = {
        name: functools.partial(query, getattr(pynvml, name), device.handle) for name in names
    }
    return _figure(device, "throttle reasons (bits)", calls, every=0.5)


def _clock(device: Device, series: str, kind: int) -> Source:
    ask = nvml().nvmlDeviceGetClockInfo
    calls: Calls = {ask.__name__: lambda: query(ask, device.handle, kind)}
    return _figure(device, series, calls, every=0.5)
