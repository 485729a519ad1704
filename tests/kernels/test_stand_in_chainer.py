"""The GPU branch of Chainer's notebook, with everything real but the GPUs: see ``stand_in_nccl``.

Runs in the chainer environment.
"""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import stand_in_nccl
from agreed import train_shallow
from import_order import at_import
from notebook_cells import CHECKED, assert_passed, cell_with, failed_in_training_loop, namespace_of
from resuming import write_small_images

from helpers.errors import UnsupportedError
from helpers.fairness import network_checks, reference
from helpers.fairness.check_results import Check, FairnessCheck
from helpers.frameworks import chainer as framework
from helpers.frameworks import devices, replicas
from helpers.frameworks.devices import Devices
from helpers.networks import weights
from helpers.runner.self_test import expected
from helpers.training import measurement_rounds

NOTEBOOK = "Chainer_MultiGPU"
BATCH = 8


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[int], dict[str, Any]]:
    """A function that gives the notebook's names on so many GPUs, up to its training-loop check."""

    def on(count: int) -> dict[str, Any]:
        names = tuple(f"GPU {number}" for number in range(count))
        monkeypatch.setattr(devices, "resolve", lambda *asked: Devices("gpu", names))
        monkeypatch.setattr(
            framework,
            "list_devices",
            lambda kind, number, gpus: [stand_in_nccl.Gpu(place) for place in range(number)],
        )
        floats = sum(array.size for array in reference.shallow_arrays().values())
        monkeypatch.setattr(replicas, "run", stand_in_nccl.runs_on(count, floats))
        return namespace_of(
            NOTEBOOK,
            tmp_path,
            until=CHECKED,
            checked=False,
            devices=count,
            data=str(write_small_images(tmp_path / "data")),
            batch_size=BATCH,
            workers=2,
        )

    return on


def use_all(*given: Any, devices: Any, **named: Any) -> FairnessCheck:
    """In place of the network's half of the fairness check, which takes half a minute."""
    for device in devices:
        device.use()
    return FairnessCheck((Check("used", 0.0, 0.0),))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_loop_walks_the_path_of_one_device_stand_in(gpus: Any, count: int) -> None:
    """MultiprocessParallelUpdater sums gradients, and changes the optimiser to make up for it."""
    run = gpus(count)["this_run"]
    run.check_training_loop(**vars(run.functions))
    if count > 1:
        assert_passed(run)
    else:
        assert run.fairness_check.comparable


def test_a_rate_that_the_updater_changes_is_caught_stand_in(gpus: Any) -> None:
    names = gpus(2)
    hook = "parallel.rate_of_step(rule, rates)"
    hooked, once = f"optimizer.add_hook({hook})", f"{hook}(optimizer)"
    assert "weight change after 5 SGD steps" in failed_in_training_loop(
        names, NOTEBOOK, hooked, once
    )


def test_a_run_on_gpus_from_training_to_its_measurements_stand_in(
    gpus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every later cell of the notebook that has a branch for GPUs, on two of them."""
    names = gpus(2)
    run, start = names["this_run"], reference.shallow_arrays()
    train_shallow(names)
    monkeypatch.setattr(network_checks, "check_fairness", use_all)
    exec(cell_with(NOTEBOOK, "this_run.check_fairness("), names)
    assert [check.check for check in run.fairness_check.checks] == ["used"]
    run.progress.skip("check_training_loop")
    for text in (CHECKED, "this_run.test()", "this_run.profile("):
        exec(cell_with(NOTEBOOK, text), names)
    assert not stand_in_nccl.started, "the notebook's own process holds no GPU's memory"

    steps = names["scaled"].steps(len(names["images"].train))
    assert [row["images"] for row in run.history] == [2 * BATCH * steps] * len(run.history)
    assert {row["learning_rate"] for row in run.history} == {names["scaled"].learning_rate}
    assert run.history[-1]["train_loss"] < run.history[0]["train_loss"]
    trained = weights.load(run.folder / "weights.safetensors")
    assert not np.array_equal(trained["classifier.weight"], start["classifier.weight"])
    assert run.record.content["test"]["mean_auc"] > 0

    assert set(run._measured) == {"files", "synthetic", "no_allreduce", "loader"}
    images = run.monitor.summary().to_pandas().drop_duplicates("phase").set_index("phase")["items"]
    taken = measurement_rounds.ROUNDS * (measurement_rounds.steps_of_a_turn(run.history) + 1)
    assert images["synthetic"] == 2 * BATCH * taken
    assert np.isnan(images["without all-reduce"]), "one GPU trains there, not the global batch"


def test_replicas_that_share_a_gpu_are_refused_and_not_made_fewer_stand_in() -> None:
    with pytest.raises(UnsupportedError, match=r"^4 replicas on 2 GPUs: .* NCCL, which refuses"):
        framework.list_devices("gpu", 4, 2)
    assert len(framework.list_devices("cpu", 4, 0)) == 4


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
    done: list[str] = []

    class Event:
        def __init__(self, block: bool) -> None:
            assert block, "it sleeps instead of keeping a core busy"

        def record(self) -> None:
            done.append("recorded")

        def synchronize(self) -> None:
            done.append("waited for")

    cupy = SimpleNamespace(cuda=SimpleNamespace(Event=Event))
    monkeypatch.setattr(framework.cuda, "cupy", cupy)
    wait = framework.completion("an array on a GPU")
    assert done == ["recorded"] and wait is not None
    wait()
    assert done == ["recorded", "waited for"]


@pytest.mark.parametrize(("precision", "expected"), [("fp32", "0 0"), ("tf32", "- 1")])
def test_cudas_libraries_are_told_before_they_come_stand_in(precision: str, expected: str) -> None:
    assert at_import(NOTEBOOK, "chainer", precision) == expected


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_probes_all_reduce_forks_and_takes_nccl_stand_in(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "run", stand_in_nccl.runs_on(count, expected.SHARE))
    shares = expected.shares(count)
    found = framework.all_reduced(shares, [stand_in_nccl.Gpu(place) for place in range(count)])
    assert expected.wrong_sum(found, shares) is None
    assert not stand_in_nccl.started, "CUDA starts in the process that forks, after it has forked"
