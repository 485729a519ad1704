"""Find out which GPUs an environment supports, why not others, and what ails a driver.

``environments/capabilities.json`` says which GPU generations the CUDA packages of each lock hold
code for; ``make lock`` reads it out of the packages themselves (``environments/device_code.py``).
This module applies that to a GPU and its driver. `make envs` imports it before anything is
installed, so it uses only Python's standard library and no syntax newer than Python 3.9.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from helpers.frameworks import ROWS

FILE = Path(__file__).resolve().parents[2] / "environments" / "capabilities.json"

CANNOT_SHARE = {row.kernel: row.cannot_share for row in ROWS if row.cannot_share}
"""Kernels whose replicas need a GPU each, and why."""

NO_DRIVER = (9, 12)
"""NVML's codes on a machine without a GPU to use: driver not loaded, library not found."""

_CURES = {
    4: "check the permissions of /dev/nvidia*; in a container, start it with GPU access (--gpus "
    "all), which its device cgroup must allow",
    18: "reboot, or reload the kernel modules (sudo rmmod nvidia_uvm nvidia && sudo modprobe "
    "nvidia): the driver was updated while an older one was loaded",
    999: "in a container, restart it with the GPU runtime once nvidia-smi works on the host; "
    "elsewhere, reboot",
}
"""The usual cure of an NVML error, by its code."""


class Gpu(NamedTuple):
    """A GPU, or an instance of one in MIG mode."""

    name: str
    capability: tuple[int, int] | None = None
    """Its generation, (9, 0) for an H100; None if unknown."""
    driver: str | None = None
    """The driver's version, ``580.65.06``; None if unknown."""
    uuid: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({generation(self.capability)})" if self.capability else self.name


@lru_cache(maxsize=1)
def table() -> dict[str, Any]:
    """What the packages of each lock hold, by the lock's name without ``.txt``."""
    content: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return content


def forms(kernel: str) -> list[str]:
    """The forms of a kernel that compute on GPUs, the one to prefer first; none of ``lab``."""
    if kernel not in table():
        return []
    return ["gpu", *sorted(n[len(kernel) + 1 :] for n in table() if n.startswith(f"{kernel}-gpu-"))]


def lock(kernel: str, form: str) -> str:
    """The lock of a form (``cpu``, ``gpu``, ``gpu-cuda12``): its own, or the kernel's only one."""
    own = f"{kernel}-{form}"
    return own if own in table() else kernel


def best_form(kernel: str, gpus: Sequence[Gpu]) -> str:
    """The form that serves most of ``gpus``; ``cpu`` where none serves any."""
    served = {
        form: sum(obstacle(lock(kernel, form), gpu) is None for gpu in gpus)
        for form in forms(kernel)
    }
    best = max(served, key=served.__getitem__, default="cpu")
    return best if served.get(best) else "cpu"


def why_not(kernel: str, form: str, gpus: Sequence[Gpu]) -> str | None:
    """Why a run of ``kernel``, installed in ``form``, cannot use ``gpus``; None where it can."""
    if kernel not in table():  # no kernel of ours: nothing is known of it
        return None
    reason = _first_obstacle(kernel, form, gpus)
    if reason is None:
        return None
    better = best_form(kernel, gpus)
    if _first_obstacle(kernel, better, gpus) is None:
        return f"its {form} form {reason}: 'make envs' installs the {better} form, which can"
    # No form can. The last is the one for the oldest GPUs and drivers: what it lacks is missing.
    reason = _first_obstacle(kernel, forms(kernel)[-1], gpus) or reason
    return f"{reason} (for CPU devices hide the GPUs: CUDA_VISIBLE_DEVICES=)"


def why_not_shared(kernel: str, replicas: int, gpus: int) -> str | None:
    """Why ``replicas`` of ``kernel`` cannot share ``gpus`` GPUs; None where they can, or need not.

    ``gpus`` is 0 for CPU devices.
    """
    if kernel not in CANNOT_SHARE or not 0 < gpus < replicas:
        return None
    return f"{sharing(replicas, gpus)}: {CANNOT_SHARE[kernel]}"


def sharing(replicas: int, gpus: int) -> str:
    """``4 replicas on 1 GPU``."""
    return f"{replicas} replicas on {gpus} GPU{'' if gpus == 1 else 's'}"


def driver_failure(code: int, said: str) -> str:
    """One line about a driver that does not start.

    Args:
        code: NVML's, and none of ``NO_DRIVER``.
        said: the driver's own words for the code.
    """
    cure = _CURES.get(code, "run nvidia-smi, which shows whether the driver works")
    return f"the NVIDIA driver does not start: {said} (NVML error {code}); {cure}"


def obstacle(name: str, gpu: Gpu) -> str | None:
    """Why the packages of the lock ``name`` cannot compute on ``gpu``; None where they can.

    Machine code runs on GPUs of its own generation (the same major version) and the same or a
    newer minor version. PTX is compiled by the driver for its own and every newer generation, if
    the driver is as new as the CUDA that made it. A library without either fails when it is used.
    """
    entry = table()[name]
    if not entry["packages"]:
        return "has no code for GPUs"
    if _too_old(gpu.driver, entry["driver"]):
        return (
            f"needs NVIDIA driver {entry['driver']} or newer, "
            f"this machine has {gpu.driver}: update it"
        )
    for package, libraries in entry["packages"].items():
        for library, code in libraries.items():
            if why := _lacks(code, gpu):
                return f"{library} of {package.replace('==', ' ')} {why}"
    return None


def generation(capability: Sequence[int]) -> str:
    """A compute capability as NVIDIA writes it: ``9.0``."""
    return ".".join(map(str, capability))


def _first_obstacle(kernel: str, form: str, gpus: Sequence[Gpu]) -> str | None:
    name = lock(kernel, form)
    return next((why for gpu in gpus if (why := obstacle(name, gpu))), None)


def _lacks(code: dict[str, Any], gpu: Gpu) -> str | None:
    """What a library lacks for a GPU."""
    if gpu.capability is None:
        return None
    native = [_numbers(each) for each in code["machine code"]]
    if any(each[0] == gpu.capability[0] and each <= gpu.capability for each in native):
        return None
    ptx = {_numbers(each): driver for each, driver in code["ptx"].items()}
    usable = [each for each in ptx if each <= gpu.capability]
    if not usable:
        served = sorted([*native, *ptx])
        return (
            f"has no code for {gpu}, only for {generation(served[0])} to {generation(served[-1])}"
        )
    if _too_old(gpu.driver, ptx[max(usable)]):
        return (
            f"has only PTX for {gpu}, which NVIDIA driver {ptx[max(usable)]} or newer compiles, "
            f"this machine has {gpu.driver}: update it"
        )
    return None


def _numbers(generation: str) -> tuple[int, int]:
    major, minor = generation.split(".")
    return int(major), int(minor)


def _too_old(driver: str | None, least: int) -> bool:
    """Whether a driver (``535.129.03``) is of an older branch than ``least``; unknown is not."""
    branch = (driver or "").partition(".")[0]
    return branch.isdigit() and int(branch) < least
