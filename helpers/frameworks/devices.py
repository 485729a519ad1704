"""Choose the devices of a run, GPUs or else CPU devices, and check environments for GPUs."""

import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pynvml

from data_prep.files import core_count
from helpers import paths
from helpers.errors import UnsupportedError, UserError
from helpers.frameworks import capabilities, cpu_cores, optional_kernels
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
    """The devices of a run, ``gpu`` or ``cpu``; each CPU device's cores where it has its own."""

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
        return (
            f"{self.short} that share {core_count()} cores: they show whether the data parallelism "
            "is right, and their times are not ranked"
        )


def run_name(notebook: str, replicas: int, nodes: int = 1) -> str:
    """The name of a run's folder: ``PyTorch_MultiGPU-4x``; with four on each of two, ``-2n-4x``."""
    among = f"-{nodes}n" if nodes > 1 else ""
    return f"{notebook}{among}-{replicas}x"


def visible() -> list[Gpu]:
    """The GPUs this process may use, honouring ``CUDA_VISIBLE_DEVICES``.

    Raises:
        UserError: the driver does not start, the variable names no GPU, or a GPU is in MIG mode.
    """
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None and named.split(",")[0].strip().casefold() in HIDDEN:
        return []
    found = _present()
    chosen = list(range(len(found)))
    if named is not None and found:
        chosen = _numbers(named.split(","), [gpu for gpu, _ in found])
        if not chosen:
            raise UserError(
                f"CUDA_VISIBLE_DEVICES={named} names no GPU of this machine: 'nvidia-smi -L' "
                f"lists them ({HIDE})"
            )
    if split := [number for number in chosen if found[number][1]]:
        raise UserError(
            f"GPU {split[0]} is in MIG mode, which is not supported: 'sudo nvidia-smi -i "
            f"{split[0]} -mig 0' ends it, or name other GPUs in CUDA_VISIBLE_DEVICES"
        )
    return [found[number][0] for number in chosen]


def cuda_names(gpus: Sequence[Gpu]) -> str:
    """These GPUs for ``CUDA_VISIBLE_DEVICES``, by UUID: CUDA and NVML number GPUs differently."""
    return ",".join(gpu.uuid for gpu in gpus)


def _numbers(names: Sequence[str], gpus: Sequence[Gpu]) -> list[int]:
    """The GPUs of these numbers or beginnings of a UUID; CUDA stops at the first that is none."""
    chosen = []
    for name in map(str.strip, names):
        match = [n for n, gpu in enumerate(gpus) if name == str(n) or gpu.uuid.startswith(name)]
        if not match:
            break
        chosen.append(match[0])
    return chosen


def _present() -> list[tuple[Gpu, bool]]:
    """All GPUs of this machine, and whether each is in MIG mode."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if error.value in capabilities.NO_DRIVER:
            return []
        said = _query(pynvml.nvmlErrorString, error.value) or str(error)
        why = capabilities.driver_failure(error.value, said)
        raise UserError(f"{why}; to use the CPU instead: CUDA_VISIBLE_DEVICES=") from None
    try:
        return [_gpu(index) for index in range(pynvml.nvmlDeviceGetCount())]
    finally:
        pynvml.nvmlShutdown()


def _gpu(index: int) -> tuple[Gpu, bool]:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        name, uuid = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetUUID(handle)
    except pynvml.NVMLError as error:  # it is off the bus, or belongs to another user
        raise UserError(
            f"GPU {index}: the driver says '{error}'; see 'nvidia-smi' ({HIDE})"
        ) from None
    capability = _query(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    mig = _query(pynvml.nvmlDeviceGetMigMode, handle)
    driver = pynvml.nvmlSystemGetDriverVersion()
    gpu = Gpu(name, tuple(capability) if capability else None, driver, uuid)
    return gpu, bool(mig and mig[0] == pynvml.NVML_DEVICE_MIG_ENABLE)


def _query(ask: Callable[..., Any], *of: Any) -> Any:
    """The answer of an NVML function; None if it fails."""
    with suppress(pynvml.NVMLError):
        return ask(*of)
    return None


def resolve(requested: int | str = "auto", cores_per_device: int | str = "auto") -> Devices:
    """The devices for a run: as many as requested; ``auto`` is every GPU, or else two CPU devices.

    A CPU device has ``cores_per_device``: ``auto`` is an equal part, ``shared`` none of its own.

    Raises:
        UserError: a wrong number, or GPUs that are there, not hidden, and cannot be used.
        UnsupportedError: this process's own environment cannot compute on these GPUs.
    """
    found = visible()
    count = _number("devices", requested)
    if count is None:
        count = len(found) or min(CPU_DEVICES, len(cpu_cores.machine()))
    if not found:
        names = tuple(f"CPU device {number}" for number in range(count))
        if cores_per_device != cpu_cores.SHARED:
            return Devices("cpu", names, cpu_cores.divided(count, check_cores(cores_per_device)))
        if count > (most := max(FEW_SHARING, A_CORE * core_count())):
            raise UserError(
                f"devices {count}: they would share {core_count()} cores; give {most} at most"
            )
        return Devices("cpu", names)
    if count > len(found):
        raise UserError(
            f"devices {count}: this process sees {len(found)} GPU(s); give {len(found)} at most "
            f"({HIDE})"
        )
    if why := why_not_here(found[:count]):
        raise UnsupportedError(why)
    return Devices("gpu", tuple(gpu.name for gpu in found[:count]))


def check_cores(cores_per_device: int | str) -> int | None:
    """The cores of a CPU device as a number; None of ``auto``."""
    return _number("cores_per_device", cores_per_device)


def _number(what: str, value: object) -> int | None:
    if value == "auto":
        return None
    try:
        number = int(str(value))  # neither 0.5 nor True is one
    except ValueError:
        raise UserError(f"{what} '{value}': give a number, or auto") from None
    if number < 1:
        raise UserError(f"{what} {number}: must be 1 or more")
    return number


def precision(asked: str) -> str:
    """Resolve ``auto``: tf32 if all GPUs have it (compute capability 8.0), otherwise fp32."""
    if asked != "auto":
        return asked
    gpus = visible()
    has_tf32 = gpus and all((gpu.capability or (0, 0)) >= (8, 0) for gpu in gpus)
    return "tf32" if has_tf32 else "fp32"


def hardware() -> dict[str, Any]:
    """The machine, for the record: CPU, cores, memory in bytes, GPUs, driver."""
    gpus: list[Gpu] = []
    with suppress(UserError):  # what a run is refused for is decided elsewhere
        gpus = visible()
    cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = (line.partition(":")[2].strip() for line in cpu if line.startswith("model name"))
    return {
        "cpu": next(names, platform.machine()),
        "cores": psutil.cpu_count(logical=True),
        "usable_cores": core_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "platform": platform.platform(),
        "gpus": [gpu.name for gpu in gpus],
        "driver": gpus[0].driver if gpus else None,
    }


def problem(kernel: str, gpus: Sequence[Gpu] = ()) -> str | None:
    """Why ``kernel`` cannot be used, on ``gpus`` if any, in one line; None if it can."""
    from jupyter_client import kernelspec  # a run's own process does without

    content = _status(kernel)
    if content.get("ok") is False:
        reason = str(content.get("reason") or "no reason was written").strip().splitlines()[0]
        return f"the environment of kernel '{kernel}' could not be built: {reason}"
    make = "'make envs'"
    if kernel in optional_kernels():
        make = f"""'make envs ARGS="--environments {kernel}"'"""
    try:
        spec = kernelspec.KernelSpecManager().get_kernel_spec(kernel)
    except kernelspec.NoSuchKernel:
        return f"kernel '{kernel}' is not installed: run {make}"
    command = spec.argv[0] if spec.argv else ""
    if Path(command).is_absolute() and not Path(command).exists():
        return f"kernel '{kernel}' points at {command}, which is gone: run {make}"
    return _why_not(kernel, gpus)


def why_not_here(gpus: Sequence[Gpu]) -> str | None:
    """Why the environment this process runs in cannot compute on ``gpus``; None if it can."""
    environment = Path(sys.prefix)
    ours = environment.parent.resolve() == paths.VENVS.resolve()
    return _why_not(environment.name, gpus) if ours else None


def _why_not(kernel: str, gpus: Sequence[Gpu]) -> str | None:
    form = _status(kernel).get("form")
    if not gpus or form is None:  # None: not made by `make envs`, so nothing is known of it
        return None
    why = capabilities.why_not(kernel, str(form), gpus)
    return why and f"kernel '{kernel}': {why}"


def _status(kernel: str) -> dict[str, Any]:
    """What `make envs` wrote about an environment; empty if nothing readable."""
    with suppress(OSError, ValueError):
        content = json.loads((paths.VENVS / f"{kernel}.json").read_text(encoding="utf-8"))
        return content if isinstance(content, dict) else {}
    return {}
