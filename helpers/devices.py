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

from helpers.errors import UserError

VIRTUAL_DEVICES = 2
MOST_VIRTUAL = 1024


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


def visible_gpus() -> list[str]:
    """Names of the GPUs this process may use, honouring ``CUDA_VISIBLE_DEVICES``."""
    return [name for _, name in _visible()]


def visible_uuids() -> list[str]:
    """UUIDs of the same GPUs, in the same order: what a run's own kernel is to see of them."""
    return [uuid for uuid, _ in _visible()]


def _visible() -> list[tuple[str, str]]:
    """UUID and name of each visible GPU.

    NVML ignores ``CUDA_VISIBLE_DEVICES``, so it is applied here; entries are indices or UUID
    prefixes.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no library or no driver: there is no GPU to use
        return []
    try:
        handles = [
            pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
        ]
        found = [
            (_text(pynvml.nvmlDeviceGetUUID(h)), _text(pynvml.nvmlDeviceGetName(h)))
            for h in handles
        ]
    finally:
        pynvml.nvmlShutdown()
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return found
    visible: list[tuple[str, str]] = []
    for entry in (part.strip() for part in wanted.split(",")):
        match = [
            gpu
            for index, gpu in enumerate(found)
            if entry == str(index) or (entry.startswith("GPU-") and gpu[0].startswith(entry))
        ]
        if not match:  # CUDA too stops at the first entry it does not know
            break
        visible.append(match[0])
    return visible


def resolve(requested: int | str = "auto") -> Devices:
    """The devices for a run: ``auto``, or how many.

    ``auto`` is every visible GPU, or two virtual CPU devices where there is none.
    """
    gpus = visible_gpus()
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
        raise UserError(
            f"devices {count}: this process sees {len(gpus)} GPU(s); ask for fewer, "
            "or hide them all (CUDA_VISIBLE_DEVICES=) for virtual CPU devices"
        )
    return Devices("gpu", tuple(gpus[:count]))


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
