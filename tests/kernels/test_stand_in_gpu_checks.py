"""The checks of what our code assumes about a GPU, each with both answers; only GPUs are fakes.

Runs in the pytorch environment. JAX's are in ``test_jax.py``.
"""

import json
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import stand_in_cuda
import torch
from notebook_cells import only_the_loop
from resuming import write_small_images

from helpers.frameworks import devices, installed, replicas
from helpers.frameworks import pytorch as framework
from helpers.frameworks.capabilities import Gpu
from helpers.training import measured_run, step_clock

sys.path.append(str(Path(__file__).resolve().parents[1] / "gpu"))

import gpu_checks
import shared

BOTH = pytest.mark.parametrize("holds", [True, False])


@pytest.fixture(autouse=True)
def _a_gpu_that_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framework, "list_devices", lambda *given: [torch.device("cpu")])


@BOTH
@BOTH
def test_memory_that_the_fairness_check_leaves_stand_in(
    holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs the notebook up to section 7, without its fairness check."""
    kept = [0]
    left = (8 if holds else 800) * gpu_checks.MIB
    monkeypatch.setattr(measured_run.Run, "check_fairness", lambda *given: kept.append(left))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: kept[-1])
    found, said = gpu_checks.pytorch_memory("gpu")
    assert found == holds
    assert said.endswith(f"reserved 0 MiB before, {8 if holds else 800} after")


@BOTH
def test_a_clock_that_does_not_wait_stand_in(holds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU each step is noted at once: a second each here, of which a GPU says the same."""
    monkeypatch.setattr(gpu_checks, "PRODUCT_SIDE", 8)
    monkeypatch.setattr(step_clock, "time", SimpleNamespace(perf_counter=count().__next__))
    of_gpu = 20_000 if holds else 22_000
    event = SimpleNamespace(record=lambda: None, elapsed_time=lambda later: of_gpu)
    monkeypatch.setattr(torch.cuda, "Event", lambda **how: event)
    found, said = gpu_checks.step_clock("gpu")
    assert found == holds
    assert said == f"20 products take 20000.0 ms by our clock, {of_gpu}.0 by the GPU's"


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
    exact: Callable[..., np.ndarray] = gpu_checks.PRODUCTS["pytorch"]

    def product(left: np.ndarray, right: np.ndarray, device: Any) -> np.ndarray:
        rounded = (tf32(left), tf32(right)) if asked[-1] in rounds_in else (left, right)
        return exact(*rounded, device)

    monkeypatch.setattr(framework, "configure", lambda precision, kind: asked.append(precision))
    monkeypatch.setitem(gpu_checks.PRODUCTS, "pytorch", product)
    found, said = gpu_checks.products("pytorch", "gpu")
    assert found == holds and asked == ["fp32", "tf32"]
    assert said.startswith("fp32: error ") and ", tf32: error " in said


@BOTH
def test_batches_of_workers(holds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not holds:
        monkeypatch.setattr(gpu_checks.Numbers, "write", lambda *given: np.zeros(4))
    found, said = gpu_checks.loader("cpu")
    assert found == holds and said == "2 batches of 2 workers"


@BOTH
def test_the_sum_of_one_process(holds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Gloo here."""
    if not holds:
        monkeypatch.setattr(framework, "all_reduced", lambda shares, devices: [0 * shares[0]])
    found, said = gpu_checks.all_reduce("cpu")
    assert found == holds
    said, _, shared = said.partition("; /dev/shm has ")
    assert said == ("the sum is right" if holds else "wrong result: the sum on device 0 is wrong")
    assert shared.endswith(" GiB")


def test_replicas_that_share_a_gpu_are_checked_and_not_trained_stand_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(devices, "visible", lambda: [Gpu("GPU 0")])
    monkeypatch.setattr(installed, "why_not_here", lambda gpus: None)
    cpus = [torch.device("cpu")] * 2
    monkeypatch.setattr(framework, "list_devices", lambda kind, number, gpus: cpus[:number])
    monkeypatch.setattr(replicas, "run", stand_in_cuda.runs_on_gpus(shared=True))
    only_the_loop(monkeypatch)
    gradients = framework.gradients  # whose DDP on CPUs the stand-in does not know
    monkeypatch.setattr(
        framework,
        "gradients",
        lambda model, images, targets, devices: gradients(model, images, targets, devices[:1]),
    )
    run, images = tmp_path / "run", write_small_images(tmp_path / "data")
    (recipe := tmp_path / "small.toml").write_text('recipe = "demo"\n[train]\nbatch_size = 4\n')
    assert shared.main(str(run), str(images), str(recipe), "2", "1") == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("2 replicas on 1 GPU: comparable, ")
    record = json.loads((run / "record.json").read_text())
    checks = {check["check"] for check in record["fairness"]["checks"]}
    assert "weight change after 5 SGD steps" in checks and "epochs" not in record
