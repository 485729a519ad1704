"""Where the time went: shares with their intervals, and sentences that the shares can bear."""

from collections.abc import Sequence
from typing import Any

import pytest

from helpers.record import sections
from helpers.training import attribution

FIRST = {
    "images_per_second": 80.0,
    "train_seconds": 100.0,
    "valid_seconds": 1.0,
    "data_seconds": 50.0,
    "steps": 10,
}
"""The first epoch, with tracing."""
STEADY = FIRST | {
    "images_per_second": 1000.0,
    "train_seconds": 8.0,
    "valid_seconds": 2.0,
    "data_seconds": 4.4,
}
QUICK = STEADY | {"data_seconds": 0.1}
TRAINING = {"seconds": 100.0, "first_step_seconds": 0.8, "step_seconds": {"median": 0.8}}
EVEN = (0.99, 1.0, 1.01, 1.0, 0.995, 1.005)
"""Six rounds of a steady machine, around 1."""
WIDE = (0.8, 0.9, 1.0, 1.0, 1.3, 1.2)


def around(rate: float, rounds: Sequence[float] = EVEN) -> dict[str, Any]:
    return sections.throughput([rate * each for each in rounds])


def attribute(
    files: Any, synthetic: Any, loader: Any, no_allreduce: Any = None, **given: Any
) -> dict[str, Any]:
    """A rate stands for rounds in step with each other."""
    kinds = {"files": files, "synthetic": synthetic, "loader": loader, "no_allreduce": no_allreduce}
    content = {
        kind: rate if isinstance(rate, dict) else around(rate)
        for kind, rate in kinds.items()
        if rate is not None
    }
    content["epochs"] = given.pop("history", [FIRST, STEADY, STEADY])
    content["training"] = given.pop("training", TRAINING)
    content["cluster"] = given.pop("cluster", None)
    count = given.pop("replicas", 1 if no_allreduce is None else 4)
    content |= {"data": given.pop("data", {}), "devices": {"count": count}, "hardware": {}}
    content["checkpoint"] = {"resumed_after": given.pop("resumed_after", 0)}
    assert not given
    return attribution.attribute(content, "4 GPUs")


def test_loader_bound() -> None:
    found = attribute(1000, 2300, 1100, data={"format": "jpg"})
    assert found["shares"]["validation"] == pytest.approx(0.2)
    assert found["shares"]["data"] == pytest.approx(0.8 * (1 - 1000 / 2300))
    assert found["shares"]["communication"] == pytest.approx(0)
    assert found["sentence"].startswith("The loader is the limit: 4 GPUs processed 1,000 images/s")
    assert "1,100" in found["sentence"] and "data 45 % (45 to 45)" in found["sentence"]
    assert "To fix it, pack the images (data-prep pack)." in found["sentence"]
    assert "To fix it" not in attribute(1000, 2300, 1100)["sentence"]


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [
        (0.1, 0.29, True),
        (0.1, 0.31, False),  # too wide
        (-0.09, 0.05, True),
        (-0.11, 0.05, False),  # a wait of less than nothing
        (0.9, 1.04, True),
        (0.9, 1.06, False),  # more than all
    ],
)
def test_a_share_is_told_where_its_interval_is_narrow_and_possible(
    low: float, high: float, told: bool
) -> None:
    found = {"shares": {"data": (low + high) / 2}, "intervals": {"data": [low, high]}}
    assert attribution.is_measured(found, "data") == told
    assert (attribution.in_words(found, "data") != attribution.NOISY) == told
    assert told or not attribution.telling(found)
    assert told or not attribution.leaves_little(found, ["data"])


@pytest.mark.parametrize(("low", "named"), [(0.051, True), (0.049, False)])
def test_a_wait_is_named_if_its_whole_interval_is_large(low: float, named: bool) -> None:
    shares = dict.fromkeys(attribution.WAITS, 0.1)
    found = {"shares": shares, "intervals": {"data": [low, 0.15], "communication": [0.01, 0.15]}}
    assert attribution.telling(found) == ({"data": 0.1} if named else {})


def test_no_sentence_and_no_cell_has_a_negative_number() -> None:
    """Files were faster than synthetic data, by a little and by much, and the rounds scattered."""
    for files, synthetic in ((1010, 1000), (1500, 1000), (1000, around(1000, WIDE))):
        for silent in (None, 900, around(1000, WIDE)):
            found = attribute(files, synthetic, 5000, silent, history=[QUICK])
            words = [attribution.in_words(found, share) for share in found["shares"]]
            text = " ".join([found["sentence"], *words])
            assert "-" not in text.replace("all-reduce", "").replace("per-device", "")


def test_communication_is_what_silence_saves() -> None:
    found = attribute(1000, 1000, 5000, no_allreduce=1600, history=[STEADY])
    assert found["shares"]["communication"] == pytest.approx(0.8 * (1 - 1000 / 1600))
    assert attribution.telling(found) == {"communication": pytest.approx(0.3)}
    assert "communication 30 % (30 to 30)" in found["sentence"]
    assert "A larger per-device batch" in found["sentence"]


def test_compute_is_no_limit_where_devices_may_wait_for_each_other() -> None:
    unknown = attribute(990, 1000, 5000, replicas=2, history=[QUICK])  # no all-reduce was measured
    assert unknown["shares"].keys() == {"data", "validation"}
    assert unknown["sentence"].startswith("Loading is not the limit")
    for no_allreduce, begins in (
        (None, "Compute is the limit"),
        (1010, "Compute is the limit"),
        (1600, "Loading is not the limit"),
        (around(1050, (0.95, 1, 1, 1, 1, 1.2)), "Loading is not the limit"),
    ):
        found = attribute(1000, 1000, 5000, no_allreduce=no_allreduce, history=[QUICK])
        assert found["sentence"].startswith(begins)


def test_compiling_is_what_the_first_step_took_longer() -> None:
    slow = TRAINING | {"first_step_seconds": 50.8}
    found = attribute(1000, 1010, 5000, training=slow)
    assert "Compiling takes 50 % of the training; the first step took 50.8 s." in found["sentence"]
    assert "Compiling" not in attribute(1000, 1010, 5000)["sentence"]
    content: dict[str, Any] = {"training": slow, "epochs": [FIRST, STEADY]}
    assert attribution.compiling(content) == pytest.approx(0.5)
    del content["training"]["step_seconds"]  # an older record has the last epoch's mean
    assert attribution.compiling(content) == pytest.approx(0.5)
    quick = {"training": TRAINING | {"first_step_seconds": 0.1}, "epochs": [STEADY]}
    assert attribution.compiling(quick) == 0


def test_of_a_resumed_run_the_last_process_counts() -> None:
    early = STEADY | {"images_per_second": 5000.0, "train_seconds": 1.0}
    found = attribute(1000, 2300, 1100, history=[early, early, STEADY, STEADY], resumed_after=2)
    assert found["shares"]["validation"] == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("cluster", "network"),
    [
        ({"nodes": 2, "simulated": False}, True),
        ({"nodes": 2, "simulated": True}, False),
        ({"nodes": 1, "simulated": False}, False),
        (None, False),
    ],
)
def test_between_machines_the_network_is_named(cluster: Any, network: bool) -> None:
    slow: dict[str, Any] = {"no_allreduce": 4000, "history": [STEADY | {"data_seconds": 0.0}]}
    said = attribute(990, 1000, 5000, cluster=cluster, **slow)["sentence"]
    assert said.startswith("The network between the nodes is the limit") == network
    assert "communication 59 % (59 to 59)" in said
