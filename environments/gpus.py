"""List this machine's GPUs through the driver's library, before any package is installed."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))

from helpers.frameworks import capabilities
from helpers.frameworks.capabilities import Gpu

LONGEST = 96  # the length of NVML's longest name


class DriverError(Exception):
    """The driver is installed and does not start, so the GPUs are unknown."""


def found() -> tuple[Gpu, ...]:
    """All GPUs, whatever CUDA_VISIBLE_DEVICES is; an empty tuple without a driver.

    Raises:
        DriverError: the driver is installed and does not start.
    """
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if code := nvml.nvmlInitWithFlags(0):
            if code in capabilities.NO_DRIVER:
                return ()
            nvml.nvmlErrorString.restype = ctypes.c_char_p
            said = nvml.nvmlErrorString(code).decode("utf-8", "replace")
            raise DriverError(capabilities.driver_failure(code, said))
        driver = _text(nvml.nvmlSystemGetDriverVersion)
        count = ctypes.c_uint()
        nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        gpus = tuple(_gpu(nvml, index, driver) for index in range(count.value))
        nvml.nvmlShutdown()
    except (OSError, AttributeError):  # no library, or one without such a function
        return ()
    return gpus


def _gpu(nvml: ctypes.CDLL, index: int, driver: str) -> Gpu:
    handle, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
    if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)):
        return Gpu("GPU", None, driver)
    name = _text(lambda *to: nvml.nvmlDeviceGetName(handle, *to))
    failed = nvml.nvmlDeviceGetCudaComputeCapability(
        handle, ctypes.byref(major), ctypes.byref(minor)
    )
    if _in_mig_mode(nvml, handle):
        name += " in MIG mode"
    return Gpu(name, None if failed else (major.value, minor.value), driver)


def _in_mig_mode(nvml: ctypes.CDLL, handle: ctypes.c_void_p) -> bool:
    """Whether the GPU is in MIG mode; drivers before 450 do not know that mode."""
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    try:
        failed = nvml.nvmlDeviceGetMigMode(handle, ctypes.byref(current), ctypes.byref(pending))
    except AttributeError:
        return False
    return not failed and current.value == 1


def _text(function: Callable[..., int]) -> str:
    """The text that an NVML function writes into its buffer."""
    buffer = ctypes.create_string_buffer(LONGEST)
    function(buffer, LONGEST)
    return buffer.value.decode("utf-8", "replace")
