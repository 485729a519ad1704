"""Slow devices are named before training, and the rank that all others wait for afterwards."""

import math
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from helpers.training import arithmetic, slow_devices, step_parts, train_loop
from helpers.training.world import World


@pytest.mark.parametrize(
    ("rates", "slow"),
    [
        ([10.0], []),
        ([10.0, 9.0], []),  # at the limit
        ([10.0, 8.9], [1]),  # two are compared with the faster one
        ([1.0, 10.0], [0]),
        ([10.0, 10.4, 8.9, 10.1], [2]),
        ([10.0, 13.0, 10.0], []),  # a fast one makes no other slow
        ([10.0] * 62 + [1.0, 9.5], [62]),
    ],
)
def test_a_device_is_slow_that_is_over_a_tenth_below_the_median(
    rates: list[float], slow: list[int]
) -> None:
    assert list(slow_devices.slow(rates)) == slow


def test_the_best_turn_of_each_device_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is timed alone, so that no slow one hides another of its process."""
    seconds = {"a": cycle([0.3, 0.1]), "b": cycle([0.2, 0.4])}
    monkeypatch.setattr(
        arithmetic, "seconds_a_product", lambda world, *how: next(seconds[world.device])
    )
    copies = {"a": cycle([0.02, 0.01]), "b": cycle([0.1, 0.2])}
    monkeypatch.setattr(arithmetic, "seconds_a_copy", lambda world, _: next(copies[world.device]))
    monkeypatch.setattr(train_loop, "check_training_loop", lambda *given: "result")
    work: Any = SimpleNamespace(
        framework=None, recipe=SimpleNamespace(recipe=SimpleNamespace(precision="fp32"))
    )
    trial: Any = None
    world = World(0, 2, ("a", "b"), "gpu")
    result, rates = slow_devices.checked_trial(world, work, trial)
    assert result == "result" and rates == {
        "flops_per_second": pytest.approx([2 * 4096**3 / 0.1, 2 * 4096**3 / 0.2]),
        "copied_bytes_per_second": pytest.approx([4 * 4096**2 / 0.01, 4 * 4096**2 / 0.1]),
    }
    assert slow_devices.best([{"x": [1.0, 5.0]}, {"x": [3.0, 2.0]}]) == {"x": [3.0, 5.0]}
    assert slow_devices.joined([{"x": [1.0, 5.0]}, {"x": [3.0]}]) == {"x": [1.0, 5.0, 3.0]}
    on_cores = World(0, 2, ("a",), "cpu")
    assert list(slow_devices.checked_trial(on_cores, work, trial)[1]) == ["flops_per_second"]
    for shared in (
        World(0, 1, ("a",), "cpu"),
        World(0, 2, ("a", "b"), "cpu"),
        World(0, 2, ("a", "b"), "gpu", gpus=1),
        World(0, 2, ("a",), "cpu", nodes=2, simulated_nodes=True),
    ):
        assert slow_devices.checked_trial(shared, work, trial) == ("result", {})


def content(**devices: Any) -> dict[str, Any]:
    """Four devices of two nodes, a rank each."""
    hosts = [
        {"name": name, "gpus": ["NVIDIA A100"] * 4, "ranks": ranks}
        for name, ranks in (("n1", [0, 1]), ("n2", [2, 3]))
    ]
    names = {"names": ["NVIDIA A100"] * 4, "count": 4, "kind": "gpu"}
    return {"devices": names | devices, "cluster": {"nodes": 2, "hosts": hosts}}


def test_a_slow_device_is_named_with_its_rank_and_node() -> None:
    found = content(flops_per_second=[2e13, 2e13, 2e12, 2e13])
    assert slow_devices.sentences(found) == [
        "Device 2 (rank 2 on n2, NVIDIA A100) is slow: a matrix product reaches 2,000 GFLOP/s, "
        "90 % below the median of all 4 devices."
    ]
    alone = {"devices": found["devices"] | {"count": 2, "names": ["A", "A"]}}
    alone["devices"]["flops_per_second"] = [1e12, 2e12]
    (said,) = slow_devices.sentences(alone)
    assert said.startswith("Device 0 (A) is slow") and said.endswith("50 % below the other device.")


def test_a_gpu_to_which_copies_are_slow_is_named() -> None:
    found = content(copied_bytes_per_second=[2.5e10, 2.5e10, 2.5e10, 6.1e9])
    assert slow_devices.sentences(found) == [
        "Device 3 (rank 3 on n2, NVIDIA A100) is slow: a copy from the host reaches 6.1 GB/s, "
        "76 % below the median of all 4 devices."
    ]


def test_different_gpus_are_named() -> None:
    found = content()
    found["cluster"]["hosts"][1]["gpus"] = ["NVIDIA V100", "NVIDIA A100", "NVIDIA T4"]
    assert slow_devices.sentences(found) == [
        "The GPUs differ (NVIDIA A100, NVIDIA V100): the slowest sets the pace."
    ]
    assert not slow_devices.sentences(content(kind="cpu", names=["one", "other"]))


def test_the_slowest_rank_of_each_step_is_counted() -> None:
    """It waited least: both took 1 s for each of ten steps, and rank 1 waited in one of them."""
    own = np.full((2, 10), 0.5)
    own[1, :9] = 0.9
    ranks = [np.stack([np.linspace(1, 2, 10), busy], axis=1) for busy in own]
    rows = step_parts.times(ranks)
    assert [row["slowest"] for row in rows] == [1, 9]
    assert rows[0] | {"slowest": 9} == rows[1]
    assert (rows[0]["steps"], rows[0]["p50"]) == (10, pytest.approx(1.5))
    assert rows[0]["p95"] < rows[0]["p99"] < 2
    found = content() | {"training": {"step_times": rows}}
    assert slow_devices.slowest_rank(found) == (
        "Rank 1 on n1 was the slowest in 90 % of 10 steps: it waited least for gradients."
    )


@pytest.mark.parametrize(
    ("slowest", "named"), [([13, 15], False), ([7, 21], True), ([9, 10, 9], False), ([0, 28], True)]
)
def test_a_rank_is_named_that_is_slowest_more_often_than_by_chance(
    slowest: list[int], named: bool
) -> None:
    rows = [{"steps": sum(slowest), "slowest": count} for count in slowest]
    said = slow_devices.slowest_rank({"training": {"step_times": rows}})
    assert bool(said) == named


def test_no_rank_is_called_slowest_where_the_waiting_is_not_seen() -> None:
    hidden = np.array([[1.0, math.nan]] * 3)
    rows = step_parts.times([hidden, hidden])
    assert [row["slowest"] for row in rows] == [None, None]
    assert not slow_devices.slowest_rank({"training": {"step_times": rows}})
    assert [row["slowest"] for row in step_parts.times([np.ones((3, 2))])] == [None]
    assert step_parts.times([np.zeros((0, 2))] * 2) == []
