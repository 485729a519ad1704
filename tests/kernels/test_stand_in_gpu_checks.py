"""What ``tests/gpu`` checks on a GPU, each with both answers, and its script; only GPUs are fakes.

Runs in the pytorch environment. JAX's checks are in ``test_jax.py``.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_nvml
import numpy as np
import pytest
import torch
from fake_nvml import scenarios

from helpers import paths
from helpers.frameworks import pytorch as framework
from helpers.run import Run
from helpers.training import step_clock

sys.path.append(str(Path(__file__).resolve().parents[1] / "gpu"))

import test_gpu as on_gpu

BOTH = pytest.mark.parametrize("holds", [True, False])


@pytest.fixture(autouse=True)
def _a_gpu_that_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framework, "list_devices", lambda *given: [torch.device("cpu")])


def answer(holds: bool) -> AbstractContextManager[Any]:
    return nullcontext() if holds else pytest.raises(AssertionError)


@BOTH
def test_memory_that_the_fairness_check_leaves_stand_in(
    holds: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs the notebook's cells up to its training, without its fairness check."""
    kept = [0]
    left = (8 if holds else 800) * on_gpu.MIB
    monkeypatch.setattr(Run, "check", lambda *given: kept.append(left))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: kept[-1])
    with answer(holds):
        on_gpu.test_pytorch_has_its_memory_again_after_the_fairness_check(tmp_path)


@BOTH
def test_a_clock_that_does_not_wait_stand_in(holds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU each step is noted at once: a second each here, of which a GPU says the same."""
    monkeypatch.setattr(on_gpu, "PRODUCT_SIDE", 8)
    monkeypatch.setattr(step_clock, "time", SimpleNamespace(perf_counter=count().__next__))
    of_gpu = 20_000 if holds else 22_000
    event = SimpleNamespace(record=lambda: None, elapsed_time=lambda later: of_gpu)
    monkeypatch.setattr(torch.cuda, "Event", lambda **how: event)
    with answer(holds):
        on_gpu.test_pytorch_steps_are_timed_to_their_end_on_the_gpu()


def tf32(array: np.ndarray) -> np.ndarray:
    """Float32 with the 10 bits that TF32 keeps of 23."""
    bits: np.ndarray = array.view(np.uint32) & np.uint32(0xFFFFE000)
    return bits.view(np.float32)


@pytest.mark.parametrize(
    ("rounds_in", "holds"), [({"tf32"}, True), ({"fp32", "tf32"}, False), (set(), False)]
)
def test_products_that_are_rounded_stand_in(
    rounds_in: set[str], holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU may round in both precisions, or in none."""
    asked: list[str] = []
    exact: Callable[..., np.ndarray] = on_gpu.PRODUCTS["pytorch"]

    def product(left: np.ndarray, right: np.ndarray, device: Any) -> np.ndarray:
        rounded = (tf32(left), tf32(right)) if asked[-1] in rounds_in else (left, right)
        return exact(*rounded, device)

    monkeypatch.setattr(framework, "configure", lambda precision, kind: asked.append(precision))
    monkeypatch.setitem(on_gpu.PRODUCTS, "pytorch", product)
    with answer(holds):
        on_gpu.test_pytorch_multiplies_in_the_precision()


@BOTH
def test_batches_of_workers_stand_in(
    holds: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here no batch is pinned; it does not hold where the loader pins what is not for a GPU."""
    if not holds:
        monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: True)
    with answer(holds):
        on_gpu.test_pytorch_workers_start_after_cuda_and_their_batches_are_pinned(tmp_path)


def test_the_script_runs_whole_next_to_a_gpu_that_only_its_driver_has_stand_in(
    tmp_path: Path,
) -> None:
    """In this environment, with the runner's packages from the lab's, as a bare machine has it."""
    script, out = tmp_path / "h100", tmp_path / "out"
    joules = " ".join(str(60_000 * tick) for tick in range(10_000))
    script.write_text(
        f"driver 580.65.06\n{scenarios.script(scenarios.ok, 1)}"
        f"0 capability 90\n0 energy {joules}\n0 gpm20 9\n0 gpm61 9\n"
    )
    (lab,) = paths.VENVS.glob("lab/lib/python*/site-packages")
    env = os.environ | fake_nvml.environment(script) | {"PYTHONPATH": str(lab)}
    command = [
        sys.executable,
        str(paths.ROOT / "tests" / "gpu" / "gpu_run.py"),
        str(out),
        "--small",
        "--minutes",
        "60",
    ]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    found = {line["step"]: line for line in summary["steps"]}
    skipped = {name for name, line in found.items() if line["outcome"] == "skipped"}
    assert done.returncode == 0 and skipped == {"pytorch-bf16", "jax-bf16"}, done.stdout
    assert found["pytorch-fp32"]["comparable"]
    assert len(found["pytorch-fp32"]["figures"]) == 2 and found["rivals"]["figures"]
    checks = (out / "logs" / "checks.log").read_text(encoding="utf-8")
    assert "PASSED tests/gpu/test_gpu.py::test_nvml_answers_the_monitor" in checks
    assert "no GPU that PyTorch can compute on" in checks
