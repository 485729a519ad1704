"""This module opens NVML, finds the GPUs of a run, and makes all calls to the driver.

NVML numbers GPUs in PCI order, whatever CUDA_VISIBLE_DEVICES says, and is not fork-safe.
"""

from __future__ import annotations

import contextlib
import functools
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gpumon.errors import Unavailable

_PERMANENT = ("NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "NO_PERMISSION")
"""Errors that asking again cannot cure."""
_LOST = ("GPU_IS_LOST", "RESET_REQUIRED")
NEWEST = "nvmlDeviceGetTemperatureV"
"""The function that the oldest nvidia-ml-py of gpumon's requirements has, and no older one."""
ORDER = (
    "CUDA may number these unlike GPUs in another order than the driver: set "
    "CUDA_DEVICE_ORDER=PCI_BUS_ID"
)
NO_MIG = "is in MIG mode, which gpumon does not record"


@dataclass
class Device:
    """A GPU. name: ``gpu0`` by NVML's index. handle: None if it cannot be recorded.

    cuda: the number by which the program knows it; None: CUDA does not show it.
    """

    name: str
    handle: Any
    uuid: str
    product: str
    more: dict[str, Any] = field(default_factory=dict)
    cuda: int | None = None

    def describe(self) -> dict[str, Any]:
        own = {"name": self.name, "kind": "gpu", "cuda": self.cuda, "uuid": self.uuid}
        return own | {"product": self.product} | self.more


@functools.cache
def nvml() -> Any:
    """The pynvml module, imported only when it is needed."""
    try:
        import pynvml
    except ImportError as error:
        raise Unavailable(
            f"pynvml cannot be imported ({error}); install nvidia-ml-py", permanent=True
        ) from error
    if not hasattr(pynvml, NEWEST):
        # The former package "pynvml" has a folder of this name, which hides nvidia-ml-py's module.
        raise Unavailable(
            f"{pynvml.__file__} is not the pynvml of nvidia-ml-py 13.615 or newer; run: pip "
            "uninstall pynvml; pip install --upgrade --force-reinstall nvidia-ml-py",
            permanent=True,
        )
    return pynvml


def query(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call NVML; whatever goes wrong becomes an Unavailable that says which call and why."""
    try:
        return function(*arguments)
    except nvml().NVMLError as error:
        raise as_unavailable(error) from None


def as_unavailable(error: Exception) -> Unavailable:
    """Any error of a reader as the reason that the trace keeps; of NVML's with the call."""
    if isinstance(error, Unavailable):
        return error
    code = getattr(error, "value", None)
    if type(error).__module__ != "pynvml" or code is None:
        return Unavailable(f"{type(error).__name__}: {error}")
    calls = [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]
    names = [name for name in calls if name.startswith("nvml")]
    return failure(names[-1], code)


def field_values(handle: Any, fields: list[Any], kind: str = "ullVal") -> list[int]:
    """The whole numbers of these fields of a device; Unavailable if one of them failed.

    kind: which of the value's types holds them.
    """
    values = query(nvml().nvmlDeviceGetFieldValues, handle, fields)
    for value in values:
        # The call succeeds, whatever became of the fields.
        if value.nvmlReturn:
            raise failure(f"field {value.fieldId}", value.nvmlReturn)
    return [int(getattr(value.value, kind)) for value in values]


def failure(name: str, code: int) -> Unavailable:
    """The error for the return code of a call."""
    permanent, lost = (
        any(code == getattr(nvml(), f"NVML_ERROR_{each}") for each in kinds)
        for kinds in (_PERMANENT, _LOST)
    )
    said = f"{name}: {nvml().NVMLError(code)}"
    return Unavailable(said, permanent=permanent, lost=lost, code=code)


def open_nvml() -> dict[str, Any]:
    """Initialise NVML and say what it is; Unavailable with the reason where it cannot be used."""
    pynvml = nvml()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        raise Unavailable(
            "no NVIDIA driver on this machine (libnvidia-ml.so.1 not found)", permanent=True
        ) from None
    except pynvml.NVMLError_DriverNotLoaded:
        raise Unavailable("the NVIDIA driver is installed but not loaded", permanent=True) from None
    except pynvml.NVMLError as error:
        said = _maybe(pynvml.nvmlErrorString, error.value) or error
        raise Unavailable(
            f"the NVIDIA driver does not start: {said} (NVML error {error.value}); nvidia-smi "
            "shows whether it works",
            permanent=True,
            code=error.value,
        ) from None
    return {
        "available": True,
        "driver": _maybe(pynvml.nvmlSystemGetDriverVersion),
        "nvml": _maybe(pynvml.nvmlSystemGetNVMLVersion),
    }


def close_nvml() -> None:
    with contextlib.suppress(Unavailable):
        query(nvml().nvmlShutdown)


def find_devices(
    wanted: list[str | int] | None, visible: str | None, order: str | None = None
) -> list[Device]:
    """The devices to watch, in NVML's order; Unavailable if a wanted one is not there.

    wanted: UUIDs or NVML indices, or None for those that ``visible``, the text of
    CUDA_VISIBLE_DEVICES, lets the program see. order: the text of CUDA_DEVICE_ORDER.
    """
    if visible is not None and visible.startswith("MIG-"):
        raise Unavailable(f"the GPU of CUDA_VISIBLE_DEVICES={visible} {NO_MIG}", permanent=True)
    devices = _all_devices()
    # CUDA puts the fastest GPU first by its own rule, unless CUDA_DEVICE_ORDER=PCI_BUS_ID.
    if order != "PCI_BUS_ID" and len({d.product for d in devices if d.handle is not None}) > 1:
        for device in devices:
            device.more["order"] = ORDER
    seen = devices if visible is None else _named(devices, visible.split(","))
    for number, device in enumerate(seen):
        device.cuda = number
    if wanted is not None:
        seen = []
        for want in wanted:
            found = _named(devices, [str(want)])
            if not found:
                there = ", ".join(f"{d.name} {d.uuid}" for d in devices) or "none"
                raise Unavailable(
                    f"no GPU {want!r} on this machine; there are: {there}", wrong_request=True
                )
            seen += found
    return [device for device in devices if device in seen]


def _named(devices: list[Device], entries: list[str]) -> list[Device]:
    """The devices of these names, indices or starts of UUIDs, up to the first unknown."""
    chosen: list[Device] = []
    for entry in map(str.strip, entries):
        found = [
            device
            for device in devices
            if entry in (device.name, device.name.removeprefix("gpu"))
            or (len(entry) > 4 and device.uuid.startswith(entry))
        ]
        if not found:
            break
        chosen += [device for device in found if device not in chosen]
    return chosen


def _all_devices() -> list[Device]:
    pynvml = nvml()
    devices = []
    for index in range(query(pynvml.nvmlDeviceGetCount)):
        try:
            handle = query(pynvml.nvmlDeviceGetHandleByIndex, index)
            devices.append(_device(f"gpu{index}", handle))
        except Unavailable as error:
            # A GPU that fell off the bus keeps its number and says so; the others are measured.
            devices.append(Device(f"gpu{index}", None, "", f"unreachable: {error}"))
    return devices


def _device(name: str, handle: Any) -> Device:
    pynvml = nvml()
    memory = _maybe(pynvml.nvmlDeviceGetMemoryInfo, handle)
    limit = _maybe(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    mode = _maybe(pynvml.nvmlDeviceGetMigMode, handle)
    in_mig_mode = bool(mode) and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE
    product = _maybe(pynvml.nvmlDeviceGetName, handle) or "NVIDIA GPU"
    more = {
        "memory total (MiB)": None if memory is None else round(memory.total / 2**20) or None,
        "power limit (W)": None if limit is None else limit / 1000,
    }
    uuid = query(pynvml.nvmlDeviceGetUUID, handle)
    if in_mig_mode:
        return Device(name, None, uuid, f"{product} {NO_MIG}", more)
    return Device(name, handle, uuid, product, more)


def _maybe(function: Callable[..., Any], *arguments: Any) -> Any:
    """The answer, or None where there is none."""
    with contextlib.suppress(Unavailable):
        return query(function, *arguments)
