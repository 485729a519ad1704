"""The GPU branch of Chainer's notebook, with everything real but the GPUs: see ``stand_in_nccl``.

Runs in the chainer environment.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import stand_in_nccl
from cells import CERTIFIED, assert_passed, cell_with, failed_in_rehearsal, namespace_of
from import_order import at_import
from resuming import write_small_images

from helpers import devices, reference, replicas, rounds, weights
from helpers.certificate import Certificate, Check
from helpers.devices import Devices
from helpers.errors import UnsupportedError
from helpers.frameworks import chainer as framework
from helpers.probe import known

NOTEBOOK = "Chainer_MultiGPU"
BATCH = 8


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[int], dict[str, Any]]:
    """A function that gives the notebook's names on so many GPUs, up to its rehearsal."""

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
        found = namespace_of(
            NOTEBOOK,
            tmp_path,
            until="def rehearse_replicas",
            wanted=lambda text: "fairness.certify(" not in text,
            devices=count,
            data=str(write_small_images(tmp_path / "data")),
            batch=BATCH,
            workers=2,
        )
        found["certificate"] = Certificate(())
        return found

    return on


def use_all(*given: Any, devices: Any, **named: Any) -> Certificate:
    """In place of the network's half of the certificate, which takes half a minute."""
    for device in devices:
        device.use()
    return Certificate((Check("used", 0.0, 0.0),))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_loop_walks_the_path_of_one_device_stand_in(gpus: Any, count: int) -> None:
    """MultiprocessParallelUpdater sums gradients, and changes the optimiser to make up for it."""
    names = gpus(count)
    exec(cell_with(NOTEBOOK, "rehearsal.certify("), names)
    found = names["certificate"]
    if count > 1:
        assert_passed(found)
    else:
        assert found.comparable


def test_a_rate_that_the_updater_changes_is_caught_stand_in(gpus: Any) -> None:
    names = gpus(2)
    exec(cell_with(NOTEBOOK, "rehearsal.certify("), names)
    hooked, once = "optimizer.add_hook(rate_of_step)", "rate_of_step(optimizer)"
    assert "way of 5 SGD steps" in failed_in_rehearsal(names, NOTEBOOK, hooked, once)


def test_a_run_on_gpus_from_training_to_its_measurements_stand_in(gpus: Any) -> None:
    """Every later cell of the notebook that has a branch for GPUs, on two of them."""
    names, start = gpus(2), reference.shallow_arrays()
    names["build_model"] = partial(framework.shallow, devices=names["replica_devices"])
    names["initial"] = replace(names["initial"], arrays=start)
    names["fairness"] = SimpleNamespace(certify=use_all)
    for text in (
        "def make_replicas",
        "fairness.certify(",
        CERTIFIED,
        "def test_replicas",
        "def measure_replicas",
    ):
        exec(cell_with(NOTEBOOK, text), names)
    assert not stand_in_nccl.started, "the notebook's own process holds no GPU's memory"

    history = names["history"]
    steps = names["scaled"].steps(len(names["images"].train))
    assert [row["images"] for row in history] == [2 * BATCH * steps] * len(history)
    assert {row["learning_rate"] for row in history} == {names["scaled"].learning_rate}
    assert history[-1]["train_loss"] < history[0]["train_loss"]
    trained = weights.load(names["setup"].folder / "weights.safetensors")
    assert not np.array_equal(trained["classifier.weight"], start["classifier.weight"])
    assert names["result"].mean > 0

    assert set(names["measured"]) == {"files", "synthetic", "silent", "loader"}
    images = names["monitor"].summary().drop_duplicates("phase").set_index("phase")["images"]
    taken = rounds.ROUNDS * (names["turn"] + 1)
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


@pytest.mark.parametrize(("precision", "expected"), [("fp32", "0"), ("tf32", "")])
def test_cudas_libraries_are_told_before_they_come_stand_in(precision: str, expected: str) -> None:
    assert at_import(NOTEBOOK, "chainer", precision) == expected


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_probes_all_reduce_forks_and_takes_nccl_stand_in(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "run", stand_in_nccl.runs_on(count, known.SHARE))
    shares = known.shares(count)
    found = framework.all_reduced(shares, [stand_in_nccl.Gpu(place) for place in range(count)])
    assert known.wrong_sum(found, shares) is None
    assert not stand_in_nccl.started, "CUDA starts in the process that forks, after it has forked"
