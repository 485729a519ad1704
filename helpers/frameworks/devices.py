"""Choose the devices of a run: GPUs where there are any, else CPU devices.

A CPU device is a replica that computes on cores of its own (``helpers.frameworks.cpu_cores``). It
has its share of the batch and its own BatchNorm statistics, and takes part in the gradient average
like a GPU. CPU devices that share cores show that the data parallelism is right; their times are
not ranked.
"""

import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psutil
import pynvml

from data_prep.files import core_count
from helpers.errors import UnsupportedError, UserError
from helpers.frameworks import capabilities, cpu_cores, installed, topology
from helpers.frameworks.capabilities import Gpu
from helpers.frameworks.cpu_cores import CpuDevice

CPU_DEVICES = 2
FEW_SHARING, A_CORE = 12, 4
"""CPU devices that may share the cores of any machine, as a shipped sweep asks; more by cores."""
HIDDEN = ("", "-1", "none", "void", "nodevfiles")
"""Values of ``CUDA_VISIBLE_DEVICES`` that people and schedulers hide all GPUs with."""
HIDE = "for CPU devices hide the GPUs: CUDA_VISIBLE_DEVICES="


@dataclass(frozen=True)
class Devices:
    """The devices of a run, one a replica.

    ``kind`` is ``gpu`` or ``cpu``, ``names`` has one entry a replica. ``cpus`` are the cores of
    each CPU device; empty where these share all cores.
    """

    kind: str
    names: tuple[str, ...]
    cpus: tuple[CpuDevice, ...] = ()

    @property
    def count(self) -> int:
        return len(self.names)

    @property
    def short(self) -> str:
        """How a sentence names them: "4 GPUs", "2 CPU devices"."""
        noun = "GPU" if self.kind == "gpu" else "CPU device"
        return f"{self.count} {noun}{'' if self.count == 1 else 's'}"

    def __str__(self) -> str:
        if self.kind == "gpu":
            return f"{self.short}: " + ", ".join(self.names)
        if self.cpus:
            threads = self.cpus[0].threads
            each = f"{threads} core{'s' * (threads != 1)}{' each' * (self.count > 1)}"
            which = "; ".join(",".join(map(str, cpu.cores)) for cpu in self.cpus)
            return f"{self.short} of {each} (cores {which})"
        said = (
            f"{self.short} that share {core_count()} cores: they show whether the data parallelism "
            "is right, and their times are not ranked"
        )
        return "; ".join(filter(None, (said, crowded(self.count))))


def crowded(count: int) -> str:
    """A warning where so many devices share fewer cores; else nothing."""
    if count <= core_count():
        return ""
    return (
        f"warning: {count} CPU devices share {core_count()} cores, so each step takes long; "
        "give fewer devices for a first try"
    )


def run_name(notebook: str, replicas: int, nodes: int = 1) -> str:
    """The name of a run's folder: ``PyTorch_MultiGPU-4x``.

    Of several nodes, ``-2n-4x``: with so many replicas each.
    """
    among = f"-{nodes}n" if nodes > 1 else ""
    return f"{notebook}{among}-{replicas}x"


def visible() -> list[Gpu]:
    """The GPUs this process may use, honouring ``CUDA_VISIBLE_DEVICES``.

    A GPU in MIG mode is not one of them, but each of its instances is. CUDA gives a process at most
    one instance, and then no other GPU (NVIDIA, *MIG User Guide*, CUDA device enumeration).

    Raises:
        UserError: the driver does not start or cannot reach a GPU, or the variable names one twice.
    """
    names = _named_visible()
    if _are_hidden(names):
        return []
    found = _present()
    if names is None:
        chosen = [gpu for one in found for gpu in one.usable]
    else:
        chosen = []
        for name in names:
            match = next((one.named(name) for one in found if one.named(name)), None)
            if match is None:  # CUDA too stops at the first that it does not know
                break
            if match in chosen:
                raise UserError(
                    f"CUDA_VISIBLE_DEVICES={','.join(names)} names a GPU twice, so CUDA "
                    "sees no GPU: name each GPU once"
                )
            chosen.append(match)
    instance = next((gpu for gpu in chosen if gpu.uuid.startswith("MIG-")), None)
    return chosen if instance is None else [instance]


def cuda_names(gpus: Sequence[Gpu]) -> str:
    """These GPUs for ``CUDA_VISIBLE_DEVICES``, by UUID: CUDA and NVML number GPUs differently.

    CUDA knows no UUID without a prefix, which a Jetson's only GPU has: it goes by its number.
    """
    if all(gpu.uuid.startswith(("GPU-", "MIG-")) for gpu in gpus):
        return ",".join(gpu.uuid for gpu in gpus)
    numbers = {one.gpu.uuid: one.index for one in _present()}
    return ",".join(str(numbers[gpu.uuid]) for gpu in gpus)


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
        if name == str(self.index) or (len(name) >= 4 and self.gpu.uuid.startswith(name)):
            return next(iter(self.usable), None)
        if name.startswith("MIG-"):
            return next((gpu for gpu in self.usable if gpu.uuid.startswith(name)), None)
        return None


def _named_visible() -> list[str] | None:
    """The entries of ``CUDA_VISIBLE_DEVICES``; None where it is not set."""
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if names is None else [name.strip() for name in names.split(",")]


def _are_hidden(names: Sequence[str] | None) -> bool:
    """Whether the environment hides all GPUs."""
    return names is not None and names[0].casefold() in HIDDEN


def _present() -> list[_Present]:
    """All GPUs of this machine: NVML does not know ``CUDA_VISIBLE_DEVICES``."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if error.value in capabilities.NO_DRIVER:
            if not (why := capabilities.unreachable(error.value)):
                return []
        else:
            why = capabilities.driver_failure(error.value, words(error))
        raise UserError(f"{why}; to use the CPU instead: CUDA_VISIBLE_DEVICES=") from None
    try:
        driver = text(pynvml.nvmlSystemGetDriverVersion())
        found = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                found.append(_look_at(index, driver))
            except pynvml.NVMLError as error:  # it is off the bus, or belongs to another user
                raise UserError(
                    f"GPU {index}: the driver says '{error}'; see 'nvidia-smi' "
                    "(to continue without GPUs, hide them: CUDA_VISIBLE_DEVICES=)"
                ) from None
        return found
    finally:
        pynvml.nvmlShutdown()


def _look_at(index: int, driver: str) -> _Present:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    gpu = _gpu(handle, _capability(handle), driver)
    instances = _mig_instances(handle)
    if instances is None:
        return _Present(index, gpu, (gpu,))
    usable = tuple(_gpu(instance, gpu.capability, driver) for instance in instances)
    return _Present(index, gpu, usable)


def _gpu(handle: Any, capability: tuple[int, int] | None, driver: str) -> Gpu:
    name = text(pynvml.nvmlDeviceGetName(handle))
    return Gpu(name, capability, driver, text(pynvml.nvmlDeviceGetUUID(handle)))


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


def resolve(
    requested: int | str = "auto",
    cores_per_device: int | str = "auto",
    loader_cores: str = cpu_cores.ON_DEVICE,
) -> Devices:
    """The devices for a run.

    Args:
        requested: how many. ``auto`` is every GPU, or two CPU devices where there is none.
        cores_per_device: of a CPU device. ``auto`` is an equal part of all cores, ``shared`` lets
            the devices share them.
        loader_cores: where a CPU device's loader workers run, one of ``cpu_cores.LOADER_CORES``.

    Raises:
        UserError: a wrong number, a driver that does not start, or GPUs that are there, not hidden,
            and cannot be given to CUDA.
        UnsupportedError: this process's own environment cannot compute on these GPUs.
    """
    if not (found := visible()):
        _refuse_to_hide_gpus()
    if requested == "auto":
        count = len(found) or min(CPU_DEVICES, len(cpu_cores.machine()))
    else:
        count = _number("devices", requested)
        if count < 1:
            raise UserError(f"devices {count}: a run needs at least one")
    if not found:
        return _on_cpu(count, cores_per_device, loader_cores)
    if count > len(found):
        raise UserError(f"devices {count}: {_sees(found)}; give {len(found)} at most ({HIDE})")
    if why := installed.why_not_here(found[:count]):
        raise UnsupportedError(why)
    return Devices("gpu", tuple(gpu.name for gpu in found[:count]))


def precision(asked: str) -> str:
    """A precision; ``auto`` is tf32 if all GPUs have it (compute capability 8.0), else fp32."""
    if asked != "auto":
        return asked
    gpus = visible()
    has_tf32 = gpus and all((gpu.capability or (0, 0)) >= (8, 0) for gpu in gpus)
    return "tf32" if has_tf32 else "fp32"


def _on_cpu(count: int, cores_per_device: int | str, loader_cores: str) -> Devices:
    if loader_cores not in cpu_cores.LOADER_CORES:
        raise UserError(f"loader_cores '{loader_cores}': give {', '.join(cpu_cores.LOADER_CORES)}")
    if cores_per_device == cpu_cores.SHARED or not hasattr(os, "sched_setaffinity"):
        if count > (most := max(FEW_SHARING, A_CORE * core_count())):
            raise UserError(
                f"devices {count}: they would share {core_count()} cores; give {most} at most"
            )
        return Devices("cpu", _cpu_names(count))
    each = check_cores(cores_per_device)
    cpus = cpu_cores.divided(count, each, loader_cores, cpu_cores.machine())
    return Devices("cpu", _cpu_names(count), cpus=cpus)


def check_cores(cores_per_device: int | str) -> int | None:
    """The cores of a CPU device as a number; None of ``auto``."""
    if cores_per_device == "auto":
        return None
    if (each := _number("cores_per_device", cores_per_device)) < 1:
        raise UserError(f"cores_per_device {each}: a device needs at least one")
    return each


def _cpu_names(count: int) -> tuple[str, ...]:
    return tuple(f"CPU device {number}" for number in range(count))


def _number(what: str, value: object) -> int:
    try:
        return int(str(value))  # neither 0.5 nor True is one
    except ValueError:
        raise UserError(f"{what} '{value}': give a number, or auto") from None


def _sees(found: Sequence[Gpu]) -> str:
    if found and found[0].uuid.startswith("MIG-"):
        return "this process sees 1 MIG instance, all that CUDA gives to one"
    return f"this process sees {len(found)} GPU(s)"


def _refuse_to_hide_gpus() -> None:
    """Refuse to train on the CPU of a machine with GPUs unless the user asked for it."""
    names = _named_visible()
    if _are_hidden(names) or not _present():
        return
    if names is not None:
        raise UserError(
            f"CUDA_VISIBLE_DEVICES={','.join(names)} names no GPU and no MIG instance of this "
            f"machine: 'nvidia-smi -L' lists them ({HIDE})"
        )
    raise UserError(
        f"every GPU here is in MIG mode and has no instance: 'sudo nvidia-smi mig -cgi 0 -C' "
        f"creates one of the whole GPU ({HIDE})"
    )


def hardware() -> dict[str, Any]:
    """The machine, for the record: CPU, cores, memory in bytes, GPUs, driver, what joins them.

    It names no GPU where the driver cannot: what a run is refused for is decided elsewhere.
    """
    gpus: list[str] = []
    with suppress(UserError):
        gpus = visible_gpus()
    return {
        "cpu": cpu_cores.of_cpu("model name"),
        "cores": psutil.cpu_count(logical=True),
        "usable_cores": core_count(),
        **cpu_cores.processor(),
        "memory_bytes": psutil.virtual_memory().total,
        "platform": platform.platform(),
        "gpus": gpus,
        "driver": _driver_version(),
        "topology": topology.pairs(),
    }


def _driver_version() -> str | None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        version = topology.query(pynvml.nvmlSystemGetDriverVersion)
        return None if version is None else text(version)
    finally:
        pynvml.nvmlShutdown()


def words(error: pynvml.NVMLError) -> str:
    """The driver's own words for an error; its bindings' where its library has none."""
    said = topology.query(pynvml.nvmlErrorString, error.value)
    return text(said) if said else str(error)


def text(value: bytes | str) -> str:
    """What NVML says, as text: its bindings gave bytes before version 11.5."""
    return value.decode() if isinstance(value, bytes) else value
