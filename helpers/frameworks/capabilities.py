"""Find out which GPUs an environment supports, and why it does not support others.

`make envs` imports this before anything is installed: only Python 3.9's standard library.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Code(NamedTuple):
    """The compute capabilities that all CUDA packages of a lock have code for, and its driver."""

    machine_code: str
    driver: int  # the oldest
    ptx: str = ""  # which a driver has to compile
    ptx_driver: int = 0


LOCKS = {
    "pytorch": Code("7.5 8.0 8.6 8.9 9.0 10.0 10.3 12.0", driver=580),
    "pytorch-gpu-cuda12": Code("7.0 7.5 8.0 8.6 8.9 9.0 10.0 10.3 12.0", driver=525),
    "tensorflow": None,
    "tensorflow-gpu": Code("6.0 6.1 7.0 7.5 8.0 8.6 8.9", 525, ptx="9.0 10.0 12.0", ptx_driver=555),
    "mxnet": None,
    "mxnet-gpu": Code("5.0 5.2 6.0 6.1 7.0 7.5 8.0 8.6 8.9", driver=450),
    "chainer": None,
    "chainer-gpu": Code("6.0 6.1 7.0 7.5 8.0 8.6 8.9 9.0", driver=525),
    "horovod": None,
    "jax": None,
    "jax-gpu": Code("7.5 8.0 8.6 8.9 9.0 10.0 10.3 12.0", driver=525),
}
"""By lock, without ``.txt``, its GPU code; None without any. Correct a row when its framework,
cuDNN, cuBLAS or NCCL is updated: ``cuobjdump --list-elf`` shows a library's architectures."""

NO_DRIVER = (9, 12)
"""NVML's codes on a machine without a GPU to use: driver not loaded, library not found."""


class Gpu(NamedTuple):
    name: str
    capability: tuple[int, int] | None = None
    """Its generation, (9, 0) for an H100; None if unknown."""
    driver: str | None = None
    """The driver's version, ``580.65.06``; None if unknown."""
    uuid: str = ""

    def __str__(self) -> str:
        generation = ".".join(map(str, self.capability or ()))
        return f"{self.name} ({generation})" if generation else self.name


def forms(kernel: str) -> list[str]:
    """The forms of a kernel that compute on GPUs, in order of preference; ``lab`` has none."""
    if kernel not in LOCKS:
        return []
    return ["gpu", *sorted(n[len(kernel) + 1 :] for n in LOCKS if n.startswith(f"{kernel}-gpu-"))]


def lock(kernel: str, form: str) -> str:
    """The lock of a form (``cpu``, ``gpu``, ``gpu-cuda12``): its own, or the kernel's only one."""
    own = f"{kernel}-{form}"
    return own if own in LOCKS else kernel


def best_form(kernel: str, gpus: Sequence[Gpu]) -> str:
    """The form that serves most of ``gpus``; ``cpu`` where none serves any."""

    def served(form: str) -> int:
        return sum(obstacle(lock(kernel, form), gpu) is None for gpu in gpus)

    return max((form for form in forms(kernel) if served(form)), key=served, default="cpu")


def why_not(kernel: str, form: str, gpus: Sequence[Gpu]) -> str | None:
    """Why a run of ``kernel``, installed in ``form``, cannot use ``gpus``; None if it can."""
    if kernel not in LOCKS:  # no kernel of ours: nothing is known of it
        return None
    reason = _first_obstacle(kernel, form, gpus)
    if reason is None:
        return None
    better = best_form(kernel, gpus)
    if _first_obstacle(kernel, better, gpus) is None:
        return f"its {form} form {reason}: 'make envs' installs the {better} form, which can"
    # No form can: what the last, for the oldest GPUs and drivers, lacks is missing.
    reason = _first_obstacle(kernel, forms(kernel)[-1], gpus) or reason
    return f"{reason} (for CPU devices hide the GPUs: CUDA_VISIBLE_DEVICES=)"


def driver_failure(code: int, said: str) -> str:
    """One line about a driver that does not start, with NVML's code and words."""
    return (
        f"the NVIDIA driver does not start: {said} (NVML error {code}); run nvidia-smi, which "
        "shows whether the driver works (reboot if it was updated)"
    )


def compiles_first(kernel: str, gpus: Sequence[Gpu]) -> bool:
    """Whether the driver compiles a kernel's GPU code on its first start, which takes minutes."""
    codes = [code for form in forms(kernel) if (code := LOCKS[lock(kernel, form)])]
    known = [gpu.capability for gpu in gpus if gpu.capability]
    return any(_runs_on(code.ptx, each) for code in codes for each in known)


def obstacle(name: str, gpu: Gpu) -> str | None:
    """Why the packages of the lock ``name`` cannot compute on ``gpu``; None if they can."""
    code = LOCKS[name]
    if code is None:
        return "has no code for GPUs"
    here = f"this machine has {gpu.driver}: update it"
    if _too_old(gpu.driver, code.driver):
        return f"needs NVIDIA driver {code.driver} or newer, {here}"
    if gpu.capability is None or _runs_on(code.machine_code, gpu.capability):
        return None
    if not _runs_on(code.ptx, gpu.capability):
        first, *_, last = f"{code.machine_code} {code.ptx}".split()
        return f"has no code for {gpu}, only for {first} to {last}"
    if _too_old(gpu.driver, code.ptx_driver):
        return (
            f"has only PTX for {gpu}, which NVIDIA driver {code.ptx_driver} or newer compiles, "
            f"{here}"
        )
    return None


def _first_obstacle(kernel: str, form: str, gpus: Sequence[Gpu]) -> str | None:
    name = lock(kernel, form)
    return next((why for gpu in gpus if (why := obstacle(name, gpu))), None)


def _runs_on(generations: str, capability: tuple[int, int]) -> bool:
    """Code runs on its own generation's major version, and the same or a newer minor one."""
    found = [tuple(map(int, each.split("."))) for each in generations.split()]
    return any(each[0] == capability[0] and each <= capability for each in found)


def _too_old(driver: str | None, least: int) -> bool:
    """Whether a driver (``535.129.03``) is of an older branch than ``least``; unknown is not."""
    branch = (driver or "").partition(".")[0]
    return branch.isdigit() and int(branch) < least
