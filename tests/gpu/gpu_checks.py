"""What our code assumes about a GPU: each check says whether it holds, and what was measured.

They import a framework only when they are called, and get ``gpu`` or ``cpu``, the kind of device to
compute on. ``assumptions.py`` runs them.
"""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
from typing import Any

import numpy as np

from helpers.runner.self_test import expected, machine

Found = tuple[bool, str]
"""Whether an assumption holds, and what was measured."""
MIB, GIB = 2**20, 2**30


class NotHereError(Exception):
    """This machine lacks what a check needs; its text is the reason."""


def jax_memory(kind: str) -> Found:
    """Compares the peak that a record has with what an array and a sum need."""
    import jax

    from helpers.frameworks import jax as framework

    [device] = framework.list_devices("gpu", 1)
    array = jax.device_put(np.ones(64 * MIB, np.float32), device)
    jax.block_until_ready(array + 1)
    recorded, needed = framework.peak_bytes([device]), 2 * array.nbytes
    pool = device.memory_stats()["bytes_limit"]
    given = [name for name in os.environ if name.startswith(("XLA_PYTHON_", "XLA_CLIENT_"))]
    said = (
        f"recorded {_gib(recorded)}, needed {_gib(needed)}, JAX's pool {_gib(pool)}; "
        f"set: {', '.join(given) or 'nothing, as in the notebook'}"
    )
    return recorded is not None and needed <= recorded < pool / 2 and not given, said


def _gib(size: int | None) -> str:
    return "unknown" if size is None else f"{size / GIB:.2f} GiB"


def pytorch_memory(kind: str) -> Found:
    """Runs section 7 of the notebook, and compares what this process holds of GPU 0."""
    import data_prep
    from helpers.runner.notebook_code import run_cells

    with tempfile.TemporaryDirectory() as folder:
        images, run = f"{folder}/images", f"{folder}/run"
        data_prep.generate_nih(images, images=100, size=264, num_workers=1, progress=False)
        given: dict[str, Any] = {"recipe": "chexnet", "data": images, "run": run, "devices": 1}
        names = run_cells("PyTorch_MultiGPU", until="this_run.check_fairness(", **given)
        before = _held()
        parts = (names[name] for name in ("model", "build_model", "evaluate_pixels"))
        names["this_run"].check_fairness(*parts)
        after = _held()
    said = ", ".join(
        f"{what} {was / MIB:.0f} MiB before, {now / MIB:.0f} after"
        for what, was, now in zip(("allocated", "reserved"), before, after, strict=True)
    )
    return after[1] - before[1] < 256 * MIB, said


def _held() -> tuple[int, int]:
    import torch

    return torch.cuda.memory_allocated(0), torch.cuda.memory_reserved(0)


PRODUCT_SIDE = 8192
"""20 ms a product of float32 on an H100."""


def step_clock(kind: str) -> Found:
    """Times the same matrix products by CUDA's events and by the clock of the training loops."""
    import torch

    from helpers.frameworks import pytorch as framework
    from helpers.training.step_clock import StepClock

    matrix = torch.randn(PRODUCT_SIDE, PRODUCT_SIDE, device=framework.list_devices("gpu", 1)[0])
    events = []
    with StepClock(framework.completion) as clock:
        for _ in range(21):
            product = torch.mm(matrix, matrix)
            events.append(torch.cuda.Event(enable_timing=True))
            events[-1].record()
            clock.queued(product)
    ours, of_gpu = sum(clock.step_seconds), events[0].elapsed_time(events[-1]) / 1000
    said = f"20 products take {1000 * ours:.1f} ms by our clock, {1000 * of_gpu:.1f} by the GPU's"
    return abs(ours / of_gpu - 1) < 0.05, said


SERIES = (
    *("power (W)", "energy (J)", "temperature (C)", "utilisation (%)", "memory used (MiB)"),
    *("SM activity (%)", "PCIe sent (MiB/s)", "NVLink sent (MiB/s)"),
)
"""One of each kind that traces and figures need; NVML gives some of them to administrators only."""


def nvml(kind: str) -> Found:
    """Asks the driver for each series, MIG mode and the right to GPM."""
    from gpumon.sampler import capabilities

    found = capabilities()
    if not any(device["kind"] != "host" for device in found["devices"]):
        raise NotHereError(found["nvml"].get("reason") or "there is no GPU")
    missing = {}
    for entry in found["series"]:
        device, _, series = entry["key"].partition("/")
        if device.startswith("gpu") and series in SERIES and entry["reason"]:
            missing[series] = entry["reason"]
    lacks = "; ".join(f"no {series}: {reason}" for series, reason in missing.items())
    about = "; ".join(f"{what} {value}" for what, value in machine.gpus() if what[:3] == "GPU")
    return not missing, f"{about}; {lacks or f'all {len(SERIES)} series answer'}"


ERRORS = {"fp32": (0, 2e-5), "tf32": (2e-5, 1e-2)}
"""The relative error of a product of float32 matrices; TF32 keeps 10 of 23 bits of each factor."""


def products(kernel: str, kind: str) -> Found:
    """Multiplies float32 matrices in both precisions, and compares with float64."""
    framework = importlib.import_module(f"helpers.frameworks.{kernel}")
    [device] = framework.list_devices(kind, 1)
    left, right = np.random.default_rng(0).standard_normal((2, 1024, 1024)).astype(np.float32)
    exact = left.astype(np.float64) @ right
    found = {}
    for precision in ERRORS if kind == "gpu" else ["fp32"]:
        framework.configure(precision, kind)
        off = PRODUCTS[kernel](left, right, device) - exact
        found[precision] = float(np.linalg.norm(off) / np.linalg.norm(exact))
    holds = all(ERRORS[each][0] <= error < ERRORS[each][1] for each, error in found.items())
    return holds, ", ".join(f"{each}: error {error:.1e}" for each, error in found.items())


def _in_pytorch(left: np.ndarray, right: np.ndarray, device: Any) -> np.ndarray:
    import torch

    product = torch.from_numpy(left).to(device) @ torch.from_numpy(right).to(device)
    return product.cpu().numpy()


def _in_jax(left: np.ndarray, right: np.ndarray, device: Any) -> np.ndarray:
    import jax

    return np.asarray(jax.device_put(left, device) @ jax.device_put(right, device))


PRODUCTS = {"pytorch": _in_pytorch, "jax": _in_jax}


class Numbers:
    """A dataset whose images are their numbers."""

    def __len__(self) -> int:
        return 8

    def write(self, numbers: list[int], pixels: np.ndarray) -> np.ndarray:
        pixels[...] = np.reshape(numbers, (-1, 1, 1, 1))
        return np.array(numbers)


def loader(kind: str) -> Found:
    """Starts two workers of PyTorch's loader in a process that computes on the device."""
    import torch

    from helpers.training.pytorch_batches import Loader

    on_gpu = kind == "gpu"
    torch.ones(9, device="cuda" if on_gpu else "cpu").sum().item()
    batches = Loader(Numbers(), 4, (8, 8, 1), num_workers=2, pin_memory=on_gpu)
    found = [pixels[:, 0, 0, 0].tolist() for pixels, _ in batches]
    return found == [[0, 1, 2, 3], [4, 5, 6, 7]], f"{len(found)} batches of 2 workers"


def all_reduce(kind: str) -> Found:
    """Sums on one device as the notebooks do, by NCCL on GPUs."""
    from helpers.frameworks import pytorch as framework

    shares = expected.shares(1)
    wrong = expected.wrong_sum(
        framework.all_reduced(shares, framework.list_devices(kind, 1)), shares
    )
    shared = shutil.disk_usage("/dev/shm").total
    return wrong is None, f"{wrong or 'the sum is right'}; /dev/shm has {_gib(shared)}"
