"""The GPU branch of Chainer's notebook, with everything real but the GPUs: see ``stand_in_nccl``.

Runs in the chainer environment. What trains does so in a process that a test forks: one that has
started CUDA cannot begin a second time.
"""

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import own_networks
import pytest
import stand_in_nccl
from notebook_cells import failed
from notebook_program import fairness_check, names_of
from planted_cells import SHORTLY

from helpers.fairness.check_results import Check
from helpers.frameworks import chainer as framework
from helpers.frameworks import devices, replicas
from helpers.frameworks.devices import Devices
from helpers.networks import weights
from helpers.runner.notebook_code import run_cells

NOTEBOOK = "Chainer_MultiGPU"
BATCH = 8


def on_gpus(count: int, function: Callable[..., Any], *args: Any) -> Any:
    """What the function returns, in a process of its own on a machine with so many GPUs."""
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(1, mp_context=context) as processes:
        return processes.submit(_on_gpus, count, function, *args).result()


def _on_gpus(count: int, function: Callable[..., Any], *args: Any) -> Any:
    def list_devices(kind: str, number: int) -> list[stand_in_nccl.Gpu]:
        return [stand_in_nccl.Gpu(place) for place in range(number)]

    names, floats = tuple(f"GPU {number}" for number in range(count)), 50_000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "resolve", lambda *asked: Devices("gpu", names))
        patch.setattr(framework, "list_devices", list_devices)
        patch.setattr(replicas, "run", stand_in_nccl.runs_on(count, floats))
        stand_in_nccl.install(count, floats)
        try:
            return function(*args)
        finally:
            for child in multiprocessing.active_children():
                if not child.daemon:  # an updater's
                    child.kill()


def given(folder: Path, count: int) -> dict[str, Any]:
    """Parameters of a run that takes no time."""
    recipe = own_networks.recipe_of_classes(folder / "recipe", "chainer")
    return {"recipe": str(recipe), "devices": count, "batch_size": BATCH, "num_workers": 1}


def checked(folder: Path, count: int, changes: dict[str, str]) -> list[Check]:
    how = given(folder, count)
    names = names_of(NOTEBOOK, folder, changes=changes, data="auto", **how)
    found = list(fairness_check(names).checks)
    assert not stand_in_nccl.started, "the check leaves CUDA to the training"
    return found


@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.slow), 2, 3])
def test_the_fairness_check_is_passed_stand_in(count: int, tmp_path: Path) -> None:
    """MultiprocessParallelUpdater sums gradients, and changes the optimiser to make up for it."""
    rows = on_gpus(count, checked, tmp_path, count, {})
    verdicts = {row.check: row.verdict for row in rows}
    assert set(verdicts.values()) <= {"pass", "not checked"}
    assert verdicts["weight change after 5 momentum steps"] == "pass"


def test_a_rate_that_the_updater_changes_is_caught_stand_in(tmp_path: Path) -> None:
    once = {"optimizer.add_hook(like_pytorch)": "like_pytorch(optimizer)"}
    assert "weight change after 5 SGD steps" in failed(on_gpus(2, checked, tmp_path, 2, once))


def test_validating_with_other_statistics_is_caught_stand_in(tmp_path: Path) -> None:
    """No updater on GPUs sends the first one's."""
    own = {".copyparams(replica.copies[0])": ""}
    found = failed(on_gpus(2, checked, tmp_path, 2, own))
    assert "validated with the statistics that are saved" in found


def trained(folder: Path, how: dict[str, Any]) -> tuple[Any, ...]:
    """A run of two epochs from its beginning to its measurements."""
    names = run_cells(
        NOTEBOOK,
        until="run.chart()",
        changed=lambda text: text.replace("run.measure(", SHORTLY),
        **how | {"run": str(folder / "run"), "epochs": 2},
    )
    run = names["run"]
    run.end()
    content: Any = run.record.content
    summary = run.monitor.read().summary().drop_duplicates("phase").set_index("phase")
    arrays = weights.load(run.folder / "weights.safetensors")
    return content, run.recipe.steps, summary["items"], run.initial.arrays, arrays


def test_a_run_on_gpus_from_training_to_its_measurements_stand_in(tmp_path: Path) -> None:
    how = given(tmp_path, 2)
    content, steps, images, start, arrays = on_gpus(2, trained, tmp_path, how)
    fairness = {row["check"]: row for row in content["fairness"]["checks"]}
    assert {row["verdict"] for row in fairness.values()} <= {"pass", "not checked"}
    assert fairness["optimiser in training"]["verdict"] == "pass"
    assert [row["images"] for row in content["epochs"]] == [2 * BATCH * steps] * 2
    assert any(not np.array_equal(arrays[name], start[name]) for name in arrays)
    assert {"files", "synthetic", "no_allreduce", "loader"} <= content.keys()
    rounds = 2 * BATCH * len(content["synthetic"]["rounds"])
    assert images["synthetic"] > rounds and images["synthetic"] % rounds == 0
    assert np.isnan(images["without all-reduce"]), "one GPU trains there, not the global batch"


def test_cudnn_has_room_for_quick_algorithms_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    monkeypatch.setattr(framework.cuda, "cudnn_enabled", True)
    cudnn = SimpleNamespace(set_max_workspace_size=given.append)
    monkeypatch.setattr(framework.cuda, "cudnn", cudnn, raising=False)
    framework.configure("fp32", "gpu")
    assert given and min(given) >= 256 * 2**20, "CuPy's own 8 MiB leave the slow ones"


def test_the_clock_marks_a_step_where_it_is_queued_stand_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class OfCupy(stand_in_nccl.Gpu):
        xp: Any = None

    made = mock.Mock()
    monkeypatch.setattr(framework.cuda, "cupy", SimpleNamespace(cuda=SimpleNamespace(Event=made)))
    monkeypatch.setattr(stand_in_nccl, "started", {os.getpid()})
    wait = framework.queued(OfCupy(0))
    queued = [mock.call(block=True), mock.call().record()]  # it sleeps, and keeps no core busy
    assert made.mock_calls == queued and wait is not None
    wait()
    assert made.mock_calls == [*queued, mock.call().synchronize()]
