"""What our code assumes about a GPU: ``pytest -m gpu -rA tests/gpu`` prints what it measured.

Each test is skipped where its framework, or a GPU that it sees, is missing. Call those of one
framework at a time (``-k pytorch``), because JAX takes most of a GPU's memory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import paths

sys.path.append(str(paths.ROOT / "environments"))

import gpus

pytestmark = pytest.mark.gpu
MIB = 2**20
CHECKS = "run.check("
"""The text of a notebook's cell that checks itself and trains."""


@pytest.fixture(autouse=True)
def _a_gpu(request: pytest.FixtureRequest) -> None:
    name = request.node.name
    if name.startswith("test_nvml") and not gpus.found():
        pytest.skip("no GPU: there is no driver, or it names none")
    if name.startswith("test_pytorch"):
        torch = pytest.importorskip("torch")
        if not torch.cuda.is_available():
            pytest.skip("no GPU that PyTorch can compute on")
    if name.startswith("test_jax"):
        jax = pytest.importorskip("jax")
        if jax.default_backend() != "gpu":
            pytest.skip("no GPU that JAX can compute on")


SERIES = (
    *("power (W)", "energy (J)", "temperature (C)", "utilisation (%)", "memory used (MiB)"),
    *("SM activity (%)", "PCIe sent (MiB/s)", "NVLink sent (MiB/s)"),
)
"""One of each kind that traces and metrics need; NVML gives some of them to administrators only."""


def test_nvml_answers_the_monitor() -> None:
    """Else traces and metrics lack these series."""
    from gpumon.sampler import capabilities

    missing = {}
    for entry in capabilities()["series"]:
        device, _, series = entry["key"].partition("/")
        if device.startswith("gpu") and series in SERIES and entry["reason"]:
            missing[series] = entry["reason"]
    assert not missing


ERRORS = {"fp32": (0, 2e-5), "tf32": (2e-5, 1e-2)}
"""The relative error of a product of float32 matrices; TF32 keeps 10 of 23 bits of each factor."""


def products(framework: Any, product: Callable[..., np.ndarray]) -> None:
    """Multiplies float32 matrices in both precisions, and compares with float64.

    Where the error is another one, runs are not of their precision.
    """
    [device] = framework.list_devices("gpu", 1)
    left, right = np.random.default_rng(0).standard_normal((2, 1024, 1024)).astype(np.float32)
    exact = left.astype(np.float64) @ right
    for precision, (low, high) in ERRORS.items():
        framework.configure(precision, "gpu")
        found = float(np.linalg.norm(product(left, right, device) - exact) / np.linalg.norm(exact))
        print(f"{precision}: error {found:.1e}")
        assert low <= found < high


def test_pytorch_multiplies_in_the_precision() -> None:
    import torch

    from helpers.frameworks import pytorch as framework

    def product(left: np.ndarray, right: np.ndarray, device: Any) -> np.ndarray:
        found = torch.from_numpy(left).to(device) @ torch.from_numpy(right).to(device)
        return found.cpu().numpy()

    products(framework, product)


def test_jax_multiplies_in_the_precision() -> None:
    import jax

    from helpers.frameworks import jax as framework

    products(framework, lambda a, b, on: np.asarray(jax.device_put(a, on) @ jax.device_put(b, on)))


PRODUCT_SIDE = 8192
"""20 ms a product of float32 on an H100."""


def test_pytorch_steps_are_timed_to_their_end_on_the_gpu() -> None:
    """Times the same matrix products by CUDA's events and by the clock of the training loops."""
    import torch

    from helpers.frameworks import pytorch as framework
    from helpers.training.step_clock import StepClock

    matrix = torch.randn(PRODUCT_SIDE, PRODUCT_SIDE, device=framework.list_devices("gpu", 1)[0])
    events = []
    with StepClock(framework.queued) as clock:
        for _ in range(21):
            product = torch.mm(matrix, matrix)
            events.append(torch.cuda.Event(enable_timing=True))
            events[-1].record()
            clock.queued(product.device)
    ours, of_gpu = sum(clock.step_seconds), events[0].elapsed_time(events[-1]) / 1000
    print(f"20 products take {1000 * ours:.1f} ms by our clock, {1000 * of_gpu:.1f} by the GPU's")
    assert abs(ours / of_gpu - 1) < 0.05


def in_one_process(folder: Path) -> dict[str, Any]:
    """The names of PyTorch's notebook with one process, before it checks itself."""
    import data_prep
    from helpers.runner.notebook_code import run_cells

    images = str(folder / "images")
    data_prep.generate_nih(images, images=100, size=264, num_workers=1, progress=False)
    recipe = str(Path(__file__).with_name("random.toml"))
    given: dict[str, Any] = {"recipe": recipe, "data": images, "devices": 1, "num_workers": 2}
    given |= {"batch_size": 8, "run": str(folder / "run")}
    return run_cells("PyTorch_MultiGPU_DataParallel", until=CHECKS, **given)


def test_pytorch_workers_start_after_cuda_and_their_batches_are_pinned(tmp_path: Path) -> None:
    import torch

    names = in_one_process(tmp_path)
    run = names["run"]
    torch.ones(9, device=run.devices[0]).sum().item()
    found = [
        (pixels.is_pinned(), tuple(pixels.shape), len(numbers))
        for pixels, _, numbers in names["make_loader"](run.train_split, True)
    ]
    assert found == [(run.on_gpu, (8, 224, 224, 1), 8)] * (len(run.train_split) // 8)


def test_pytorch_has_its_memory_again_after_the_fairness_check(tmp_path: Path) -> None:
    """Else training has less of the GPU, and the recorded peak counts it."""
    import torch

    names = in_one_process(tmp_path)
    before = torch.cuda.memory_reserved(0)
    model = names["build_model"]()
    functions = ("build_model", "make_replica", "train_steps", "predict", "make_loader")
    replica = names["make_replica"](model)
    names["run"].check(replica, *(names[name] for name in functions))
    after = torch.cuda.memory_reserved(0)
    print(f"reserved {before / MIB:.0f} MiB before, {after / MIB:.0f} after")
    assert after - before < 256 * MIB


def test_jax_records_the_memory_that_it_uses() -> None:
    """Else the recorded peak is JAX's pool: do not compare memory with JAX."""
    import jax

    from helpers.frameworks import jax as framework

    [device] = framework.list_devices("gpu", 1)
    array = jax.device_put(np.ones(64 * MIB, np.float32), device)
    jax.block_until_ready(array + 1)
    recorded, needed = framework.peak_bytes([device]), 2 * array.nbytes
    pool = device.memory_stats()["bytes_limit"]
    print(f"recorded {recorded}, needed {needed}, JAX's pool {pool} bytes")
    set_by = {name for name in os.environ if name.startswith(("XLA_PYTHON_", "XLA_CLIENT_"))}
    assert set_by <= {"XLA_PYTHON_CLIENT_MEM_FRACTION"}
    assert recorded is not None and needed <= recorded < pool / 2
