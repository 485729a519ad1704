"""The GPU branches of PyTorch's notebooks; all is real but the GPUs (``stand_in_cuda``).

Runs in the pytorch environment.
"""

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import stand_in_cuda
import torch
from notebook_cells import SIDE, cell_with, failed, write_noise_images

from helpers.fairness import reference
from helpers.fairness.check_results import Check
from helpers.frameworks import devices, replicas
from helpers.frameworks import pytorch as framework
from helpers.frameworks.capabilities import Gpu
from helpers.runner.notebook_code import run_cells

SMALL = f'recipe = "demo"\n[model]\nnetwork = "resnet44"\n[data]\nimage_size = {SIDE}\ncrop = 32\n'
ONE_A_GPU, ONE_FOR_ALL = "PyTorch_MultiGPU", "PyTorch_MultiGPU_DataParallel"
UNTIL = {ONE_A_GPU: "def main(", ONE_FOR_ALL: "run.check("}
"""The text of the cell that checks and trains."""


@pytest.fixture
def contexts(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One for each time that this process initialises CUDA."""
    made: list[None] = []
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: made.append(None))
    return made


@pytest.fixture
def loop(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> dict[str, Any]:
    """A notebook's names for so many replicas, before it checks itself."""
    notebook, count = request.param
    there = [Gpu(f"GPU {number}") for number in range(count)]
    monkeypatch.setattr(devices, "visible", lambda: there)
    monkeypatch.setattr(devices, "why_not_here", lambda gpus: None)
    if notebook == ONE_FOR_ALL:
        cpus = [torch.device("cpu")] * count
        monkeypatch.setattr(framework, "list_devices", lambda kind, number: cpus[:number])
        stand_in_cuda.install(monkeypatch)
    else:
        monkeypatch.setattr(replicas, "run", stand_in_cuda.run_on_gpus)
    (tmp_path / "small.toml").write_text(SMALL)
    given: dict[str, Any] = {"data": str(write_noise_images(tmp_path))}
    given |= {"recipe": str(tmp_path / "small.toml")}
    given |= {"run": str(tmp_path / "run"), "devices": count, "batch_size": 4}
    return run_cells(notebook, until=UNTIL[notebook], num_workers=0, **given)


def rows(names: dict[str, Any]) -> tuple[Check, ...]:
    """The fairness check by the notebook's own lines before its loop over the epochs."""
    notebook = ONE_FOR_ALL if "on_each" in names else ONE_A_GPU
    lines, _, _ = cell_with(notebook, UNTIL[notebook]).partition("for epoch in")
    if notebook == ONE_FOR_ALL:
        exec(lines, names)
        found = names["run"].loop.fairness
    else:
        exec(f"{lines}dist.destroy_process_group()\n    return run.loop.fairness", names)
        found = names["run"].launch(names["main"])
    checks: tuple[Check, ...] = found.checks
    return checks


@pytest.mark.parametrize("loop", [(ONE_A_GPU, 2), (ONE_FOR_ALL, 3)], indirect=True)
def test_the_fairness_check_passes_and_the_notebooks_process_needs_no_gpu_stand_in(
    contexts: list[None], loop: dict[str, Any]
) -> None:
    assert loop["run"].on_gpu
    checks = rows(loop)
    assert not failed(checks)
    assert any(check.check == "weight change after 5 SGD steps" for check in checks)
    assert not contexts


@pytest.mark.parametrize("loop", [(ONE_FOR_ALL, 2)], indirect=True)
def test_losses_that_are_not_divided_are_caught_stand_in(loop: dict[str, Any]) -> None:
    mean = "torch.stack(losses).mean()"
    step = cell_with(ONE_FOR_ALL, mean).replace(mean, "torch.stack(losses).sum()")
    exec(step, loop)
    assert "weight change after 5 SGD steps" in failed(rows(loop))


@pytest.mark.parametrize("loop", [(ONE_FOR_ALL, 3)], indirect=True)
def test_all_devices_compute_in_the_same_layout_stand_in(loop: dict[str, Any]) -> None:
    """Weights that are broadcast come without their strides: those devices would do other work."""
    shallow = framework.shallow(reference.shallow_arrays(), loop["run"].devices)
    replica = loop["make_replica"](shallow)
    model = replica.network
    seen: list[bool] = []

    def note(part: torch.nn.Module, given: Any, output: torch.Tensor) -> None:
        both = part.weight, output
        seen.extend(each.is_contiguous(memory_format=torch.channels_last) for each in both)

    model.features.conv0.register_forward_hook(note)
    batch = torch.zeros(12, 32, 32, 1, dtype=torch.uint8), torch.zeros(12, 14)
    results = loop["on_each"](replica.model, *batch)
    assert seen == [True] * 6

    torch.autograd.backward([loss / 3 for loss, _ in results])
    gradient = model.features.conv0.weight.grad
    assert gradient is not None and gradient.abs().max() > 0, "all devices' gradients come back"


def test_the_clock_marks_a_step_where_it_is_queued_stand_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = mock.Mock()
    monkeypatch.setattr(torch.cuda, "Event", made)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"the stream of {device}")
    wait = framework.queued(torch.device("cuda:1"))
    sleeps = mock.call(blocking=True)  # instead of keeping a core busy
    queued = [sleeps, mock.call().record("the stream of cuda:1")]
    assert made.mock_calls == queued and wait is not None
    wait()
    assert made.mock_calls == [*queued, mock.call().synchronize()]


def test_gpus_are_waited_for_and_nothing_else_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[Any] = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    gpus = framework.list_devices("gpu", 2)
    framework.synchronize([*gpus, torch.device("cpu")])
    assert waited == gpus
    assert [str(gpu) for gpu in gpus] == ["cuda:0", "cuda:1"]
    assert not torch.cuda.is_initialized()


@pytest.mark.parametrize(("kind", "backend"), [("gpu", "nccl"), ("cpu", "gloo")])
def test_the_fairness_check_too_joins_gpus_by_nccl_stand_in(
    kind: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def begin(backend: str, *given: Any, **how: Any) -> None:
        asked.append(backend)
        raise ConnectionAbortedError  # here CUDA would be needed

    monkeypatch.setattr(torch.distributed, "init_process_group", begin)
    monkeypatch.setattr(replicas, "run", lambda replica, *given, **how: [replica(0)])
    model = framework.shallow(reference.shallow_arrays(), [torch.device("cpu")])
    images, targets = np.zeros((4, 3, 32, 32), np.float32), np.zeros((4, 14), np.float32)
    with pytest.raises(ConnectionAbortedError):
        framework.gradients(model, images, targets, framework.list_devices(kind, 2))
    assert asked == [backend]
