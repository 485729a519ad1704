"""Which devices a run uses: GPUs where there are any, else virtual devices on the CPU.

A virtual device is a replica that computes on the CPU: it has its own share of the batch and its
own BatchNorm statistics and takes part in the gradient average like a GPU. It shows that the
data parallelism is right; it cannot show that it is fast, because all replicas share the cores.
"""

import os
import platform
from dataclasses import dataclass
from typing import Any

import psutil
import pynvml

from helpers import kernels
from helpers.capabilities import Gpu
from helpers.errors import UnsupportedError, UserError

VIRTUAL_DEVICES = 2
MOST_VIRTUAL = 1024
HIDDEN = ("", "-1", "none", "void", "nodevfiles")
"""Values of ``CUDA_VISIBLE_DEVICES`` that people and schedulers hide all GPUs with."""


@dataclass(frozen=True)
class Devices:
    """The devices of a run: ``kind`` is ``gpu`` or ``cpu``, ``names`` one entry a device."""

    kind: str
    names: tuple[str, ...]

    @property
    def count(self) -> int:
        return len(self.names)

    @property
    def short(self) -> str:
        """How a sentence names them: "4 GPUs"."""
        noun = "GPU" if self.kind == "gpu" else "virtual CPU device"
        return f"{self.count} {noun}{'' if self.count == 1 else 's'}"

    def __str__(self) -> str:
        if self.kind == "gpu":
            return f"{self.short}: " + ", ".join(self.names)
        return (
            f"{self.short} on {psutil.cpu_count()} CPU cores: they show whether the data "
            "parallelism is right, not how fast it would be"
        )


def visible() -> list[Gpu]:
    """The GPUs this process may use, honouring ``CUDA_VISIBLE_DEVICES``.

    A GPU in MIG mode is not one of them, but each of its instances is; of these CUDA gives a
    process no more than one, and no other GPU beside it (NVIDIA, *MIG User Guide*, CUDA device
    enumeration).
    """
    found = _present()
    names = _named_visible()
    if names is None:
        chosen = [gpu for one in found for gpu in one.usable]
    else:
        chosen = []
        for name in names:
            match = next((one.named(name) for one in found if one.named(name)), None)
            if match is None:  # CUDA too stops at the first that it does not know
                break
            chosen.append(match)
    instance = next((gpu for gpu in chosen if gpu.uuid.startswith("MIG-")), None)
    return chosen if instance is None else [instance]


def visible_gpus() -> list[str]:
    """Names of the GPUs this process may use."""
    return [gpu.name for gpu in visible()]


@dataclass(frozen=True)
class _Present:
    """A GPU of this machine, and what of it CUDA can be given: it, or its MIG instances."""

    index: int
    gpu: Gpu
    usable: tuple[Gpu, ...]

    def named(self, name: str) -> Gpu | None:
        """What an entry of ``CUDA_VISIBLE_DEVICES`` names here, by index or start of a UUID."""
        if name == str(self.index) or (name.startswith("GPU-") and self.gpu.uuid.startswith(name)):
            return next(iter(self.usable), None)
        if name.startswith("MIG-"):
            return next((gpu for gpu in self.usable if gpu.uuid.startswith(name)), None)
        return None


def _named_visible() -> list[str] | None:
    """The entries of ``CUDA_VISIBLE_DEVICES``; None where it is not set."""
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if names is None else [name.strip() for name in names.split(",")]


def _present() -> list[_Present]:
    """All GPUs of this machine: NVML does not know ``CUDA_VISIBLE_DEVICES``."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no library or no driver: there is no GPU to use
        return []
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        found = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            gpu = _gpu(handle, _capability(handle), driver)
            instances = _mig_instances(handle)
            usable = (
                (gpu,)
                if instances is None
                else tuple(_gpu(instance, gpu.capability, driver) for instance in instances)
            )
            found.append(_Present(index, gpu, usable))
        return found
    finally:
        pynvml.nvmlShutdown()


def _gpu(handle: Any, capability: tuple[int, int] | None, driver: str) -> Gpu:
    name = _text(pynvml.nvmlDeviceGetName(handle))
    return Gpu(name, capability, driver, _text(pynvml.nvmlDeviceGetUUID(handle)))


def _capability(handle: Any) -> tuple[int, int] | None:
    try:
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    except pynvml.NVMLError:
        return None
    return major, minor


def _mig_instances(handle: Any) -> list[Any] | None:
    """The handles of a GPU's MIG instances; None where it is not in MIG mode or knows none."""
    try:
        if pynvml.nvmlDeviceGetMigMode(handle)[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
            return None
        slots = range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle))
    except pynvml.NVMLError:
        return None
    found = []
    for slot in slots:
        try:
            found.append(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, slot))
        except pynvml.NVMLError:  # an empty slot
            continue
    return found


def resolve(requested: int | str = "auto") -> Devices:
    """The devices for a run: ``auto``, or how many.

    ``auto`` is every visible GPU, or two virtual CPU devices where there is none.

    Raises:
        UserError: a wrong number, or GPUs that are there, not hidden, and cannot be given to CUDA.
        UnsupportedError: this process's own environment cannot compute on these GPUs.
    """
    gpus = visible()
    if not gpus:
        _refuse_to_hide_gpus()
    if requested == "auto":
        count = len(gpus) or VIRTUAL_DEVICES
    else:
        try:
            count = int(requested)
        except ValueError:
            raise UserError(f"devices '{requested}': give a number, or auto") from None
        if count < 1:
            raise UserError(f"devices {count}: a run needs at least one")
    if not gpus and count > MOST_VIRTUAL:
        raise UserError(
            f"devices {count}: there is no GPU here, and {MOST_VIRTUAL} virtual ones do"
        )
    if not gpus:
        return Devices("cpu", tuple(f"virtual CPU device {i}" for i in range(count)))
    if count > len(gpus):
        sees = f"{len(gpus)} GPU(s)"
        if gpus[0].uuid.startswith("MIG-"):
            sees = "1 MIG instance, all that CUDA gives to one"
        raise UserError(
            f"devices {count}: this process sees {sees}; ask for fewer, "
            "or hide them all (CUDA_VISIBLE_DEVICES=) for virtual CPU devices"
        )
    if why := kernels.why_not_here(gpus[:count]):
        raise UnsupportedError(why)
    return Devices("gpu", tuple(gpu.name for gpu in gpus[:count]))


def _refuse_to_hide_gpus() -> None:
    """What nobody asked for must not train on the CPU where GPUs are."""
    found, names = _present(), _named_visible()
    hidden = names is not None and names[0].casefold() in HIDDEN
    if not found or hidden:
        return
    hide = "for virtual CPU devices hide the GPUs: CUDA_VISIBLE_DEVICES="
    if names is not None:
        raise UserError(
            f"CUDA_VISIBLE_DEVICES={','.join(names)} names no GPU and no MIG instance of this "
            f"machine: 'nvidia-smi -L' lists them ({hide})"
        )
    raise UserError(
        f"every GPU here is in MIG mode and has no instance: 'sudo nvidia-smi mig -cgi 0 -C' makes "
        f"one of the whole GPU ({hide})"
    )


def hardware() -> dict[str, Any]:
    """The machine, for the record: CPU, cores, memory in bytes, GPUs, driver."""
    return {
        "cpu": _cpu_model(),
        "cores": psutil.cpu_count(logical=True),
        "memory_bytes": psutil.virtual_memory().total,
        "platform": platform.platform(),
        "gpus": visible_gpus(),
        "driver": _driver_version(),
    }


def _driver_version() -> str | None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        return _text(pynvml.nvmlSystemGetDriverVersion())
    finally:
        pynvml.nvmlShutdown()


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:  # noqa: PTH123
            for line in info:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass  # not Linux: the general name below does
    return platform.processor() or platform.machine()


def _text(value: bytes | str) -> str:
    """NVML's bindings gave bytes before version 11.5."""
    return value.decode() if isinstance(value, bytes) else value
