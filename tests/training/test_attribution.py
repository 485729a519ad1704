"""Where the time went: shares with their spread, and sentences that the shares can bear."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import pytest

from helpers import record
from helpers.training import attribution

FIRST = {
    "images_per_second": 80.0,
    "train_seconds": 100.0,
    "valid_seconds": 1.0,
    "data_seconds": 50.0,
}
"""The first epoch, with tracing."""
STEADY = FIRST | {
    "images_per_second": 1000.0,
    "train_seconds": 8.0,
    "valid_seconds": 2.0,
    "data_seconds": 4.4,
}
EVEN = (0.99, 1.0, 1.01, 1.0, 0.995, 1.005)
"""Six rounds of a steady machine, around 1."""


def around(rate: float, rounds: Sequence[float] = EVEN) -> dict[str, Any]:
    return record.throughput([rate * each for each in rounds], images=128)


def attribute(
    files: Any, synthetic: Any, loader: Any, no_allreduce: Any = None, **given: Any
) -> dict[str, Any]:
    """A rate stands for rounds in step with each other."""
    kinds = {"files": files, "synthetic": synthetic, "loader": loader, "no_allreduce": no_allreduce}
    measured = {
        kind: rate if isinstance(rate, dict) else around(rate)
        for kind, rate in kinds.items()
        if rate is not None
    }
    given = {"history": [FIRST, STEADY, STEADY], "devices": "4 GPUs"} | given
    found = attribution.attribute(given.pop("history"), measured, **given)
    assert sum(found["ways"]["ablation"].values()) == pytest.approx(1)
    return found


def telling(found: dict[str, Any], loader: float = 5000) -> dict[str, float]:
    measured = {"files": around(1000), "loader": around(loader)}
    return attribution.telling(found, measured)


def test_loader_bound() -> None:
    found = attribute(1000, 2300, 1100, way_out="add workers")
    assert found["invalid"] is None
    assert found["shares"]["validation"] == pytest.approx(0.2)
    assert found["shares"]["data"] == pytest.approx(0.8 * (1 - 1000 / 2300))
    assert found["shares"]["communication"] == pytest.approx(0)
    assert found["sentence"].startswith("The loader is the limit, and waiting for it takes 45 %")
    assert "1,100" in found["sentence"] and "4 GPUs processed 1,000 images/s" in found["sentence"]
    assert found["sentence"].endswith("of synthetic data in memory. To fix it, add workers.")
    assert attribute(1000, 2300, 1100)["sentence"].endswith("of synthetic data in memory.")


def test_compute_bound_and_the_sentence_says_how_sure() -> None:
    quick = STEADY | {"data_seconds": 0.1}
    found = attribute(
        around(990), around(1000, (0.97, 1.0, 1.02, 1.0, 1.0, 1.01)), 5000, history=[quick]
    )
    assert found["shares"]["compute"] > 0.78
    least, most = found["intervals"]["data"]
    assert least < 0 < most
    assert found["sentence"].startswith("Compute is the limit")
    assert f"({100 * least:.0f} % to {100 * most:.0f} %)" in found["sentence"]
    assert telling(found) == {}


def test_a_share_below_zero_stays_what_it_is() -> None:
    found = attribute(
        around(1010), around(1000, (0.99, 1.0, 1.03, 1.0, 1.0, 1.005)), 5000, history=[STEADY]
    )
    assert found["invalid"] is None
    assert found["shares"]["data"] < 0


def test_files_faster_in_every_round_are_invalid() -> None:
    found = attribute(1011, 1000, 5000)
    assert found["invalid"].startswith("in every round training on files was faster, 1,011")
    assert found["shares"] == {
        "compute": None,
        "data": None,
        "communication": None,
        "validation": pytest.approx(0.2),
    }
    assert found["sentence"].startswith("Invalid: in every round")
    assert telling(found) == {}


@pytest.mark.parametrize(("speed", "invalid"), [(950, False), (945, True), (120, True)])
def test_slower_without_all_reduce_in_every_round_is_invalid(speed: float, invalid: bool) -> None:
    """Else the compute share was 153 % of an epoch and "the limit"."""
    quick = STEADY | {"data_seconds": 0.1, "images_per_second": 900.0}
    found = attribute(990, 1000, 5000, no_allreduce=speed, history=[quick])
    assert (found["invalid"] is not None) == invalid
    if invalid:
        assert found["shares"]["compute"] is None and telling(found) == {}
        assert "without all-reduce was slower, " in found["sentence"]
    once = around(120, (*EVEN[:5], 9.0))
    assert attribute(990, 1000, 5000, no_allreduce=once, history=[quick])["invalid"] is None


def test_a_measurement_that_is_left_out_makes_it_invalid() -> None:
    """Communication would be none, as on one device."""
    found = attribute(900, 1000, 5000, replicas=2)
    assert found["sentence"].startswith("Invalid: the all-reduce alone took longer")
    assert attribute(900, 1000, 5000)["invalid"] is None, "one device has none"
    assert telling(found) == {}


def test_one_round_in_which_files_were_not_faster_is_within_the_interval() -> None:
    once = around(1000, (*EVEN[:5], 1.2))
    assert attribute(1011, once, 5000)["invalid"] is None


@pytest.mark.parametrize(("pace", "invalid"), [(1009.9, False), (1010.1, True)])
def test_epochs_faster_than_the_fastest_round_of_noise_are_invalid(
    pace: float, invalid: bool
) -> None:
    epochs = [FIRST, *[STEADY | {"images_per_second": pace}] * 2]
    found = attribute(900, 1000, 5000, history=epochs)
    assert (found["invalid"] is not None) == invalid
    if invalid:
        assert "the epochs on files were faster, 1,010 images/s" in found["sentence"]


def test_neither_alone_is_the_limit() -> None:
    epochs = [STEADY | {"images_per_second": 500.0}]
    assert "slow each other down" in attribute(500, 1000, 1200, history=epochs)["sentence"]


def test_a_share_smaller_than_what_the_ways_differ_by_makes_no_sentence() -> None:
    slow = STEADY | {"data_seconds": 0.0, "images_per_second": 900.0}
    found = attribute(900, 1000, 5000, history=[slow])
    assert found["shares"]["data"] == pytest.approx(0.08)
    assert found["agreement"]["data"]["difference"] == pytest.approx(0.08)
    assert telling(found) == {}  # no larger than the difference
    assert found["sentence"].startswith("The limit cannot be determined")
    assert "less than the difference between the ways of measuring" in found["sentence"]
    seen = STEADY | {"data_seconds": 0.7, "images_per_second": 900.0}
    found = attribute(900, 1000, 5000, history=[seen])
    assert telling(found) == {"data": pytest.approx(0.08)}


def test_a_wait_for_data_longer_than_a_loader_needs_makes_no_sentence() -> None:
    """With many runs, all six rounds of one can be slower by chance."""
    seen = STEADY | {"data_seconds": 0.7, "images_per_second": 900.0}
    found = attribute(900, 1000, 200_000, history=[seen])
    assert telling(found, 200_000) == {} and "The loader is" not in found["sentence"]


def test_a_share_that_the_rounds_do_not_tell_from_zero_makes_no_sentence() -> None:
    seen = STEADY | {"data_seconds": 0.8, "images_per_second": 900.0}
    found = attribute(900, around(1000, (0.89, 1, 1, 1, 1, 1)), 5000, history=[seen])
    assert found["shares"]["data"] > attribution.LITTLE and found["intervals"]["data"][0] < 0
    assert telling(found) == {}


def test_little_is_no_sentence() -> None:
    seen = STEADY | {"data_seconds": 0.4, "images_per_second": 950.0}
    found = attribute(950, 1000, 5000, history=[seen])
    assert 0 < found["intervals"]["data"][0] <= found["shares"]["data"] < attribution.LITTLE
    assert telling(found) == {}


def test_rounds_too_far_apart_tell_no_limit_unless_the_loop_saw_no_wait() -> None:
    wide = around(1000, (0.8, 0.9, 1.0, 1.0, 1.3, 1.2))
    for waited, begins in (
        (1.0, "The limit cannot be determined"),
        (0.1, "Compute is the limit"),
    ):
        said = attribute(990, wide, 5000, history=[STEADY | {"data_seconds": waited}])["sentence"]
        assert said.startswith(begins) and f"in the loop itself as {10 * waited:.0f} %" in said
    hidden = STEADY | {"data_seconds": None}
    said = attribute(990, wide, 5000, history=[hidden])["sentence"]
    assert said.startswith("The limit cannot be determined") and "in the loop" not in said
    near = attribute(990, 1000, 5000, history=[hidden])["sentence"]
    assert near.startswith("Compute is the limit")
    seen = attribute(990, 1000, 5000, history=[STEADY])  # by the loop 44 %, by the rounds 1 %
    assert seen["sentence"].startswith("The limit cannot be determined")


def test_epochs_at_another_pace_than_the_rounds_are_told() -> None:
    slow, slower = (STEADY | {"images_per_second": pace} for pace in (500.0, 400.0))
    said = attribute(1000, 1010, 5000, history=[FIRST, slow, slower])["sentence"]
    assert said.endswith("400 to 500 images/s, so these shares were measured at a different speed.")
    assert "pace" not in attribute(1000, 1010, 5000, history=[STEADY])["sentence"]


def test_communication_is_what_silence_saves() -> None:
    found = attribute(1000, 1000, 5000, no_allreduce=1600, history=[STEADY])
    assert found["shares"]["communication"] == pytest.approx(0.8 * (1 - 1000 / 1600))
    assert telling(found) == {"communication": pytest.approx(0.3)}
    assert "The all-reduce takes 30 % of an epoch (30 % to 30 %)" in found["sentence"]


def test_compute_is_no_limit_where_devices_may_wait_for_each_other() -> None:
    """Else the words would say "compute" under a headline that says "each other"."""
    quick = STEADY | {"data_seconds": 0.0}
    for no_allreduce, begins in (
        (1010, "Compute is the limit"),
        (1600, "Loading is not the limit"),
        (around(1050, (0.95, 1, 1, 1, 1, 1.2)), "Loading is not the limit"),
    ):
        found = attribute(1000, 1000, 5000, no_allreduce=no_allreduce, history=[quick])
        assert found["sentence"].startswith(begins)


def test_a_long_validation_stands_with_its_interval() -> None:
    epochs = [FIRST, *[STEADY | {"valid_seconds": seconds} for seconds in (3.0, 4.0, 2.0)]]
    found = attribute(1000, 1010, 5000, history=epochs)
    assert "Validation takes 27 % of an epoch (20 % to 33 %)." in found["sentence"]


def test_the_ways_agree_where_they_measure_the_same() -> None:
    found = attribute(1000, 2300, 1100, no_allreduce=2500)
    steps, ablation = found["ways"]["steps"], found["ways"]["ablation"]
    assert steps["data"] == pytest.approx(0.44) and ablation["data"] == pytest.approx(
        0.452, abs=0.001
    )
    assert steps["communication"] is None, "the loop does not see it"
    assert steps["compute"] + steps["data"] + steps["validation"] == pytest.approx(1)
    assert found["agreement"]["data"]["agree"]
    assert attribution.agreement(found).startswith("The ways agree on data, within")


def test_ways_agree_within_five_points_or_the_rounds_spread() -> None:
    def doubted(seconds: float, rounds: Sequence[float] = EVEN) -> list[str]:
        epochs = [STEADY | {"data_seconds": seconds}]
        return attribution.doubted(attribute(800, around(1000, rounds), 5000, history=epochs))

    assert doubted(1.11) == [] and doubted(1.09) == ["data"]  # by 4.9 and 5.1 points
    wide = (0.85, 1.0, 1.2, 1.0, 1.0, 1.0)
    assert doubted(1.09, wide) == []


def test_a_difference_that_only_the_rounds_scatter_hides_is_told() -> None:
    """ "They agree" beside 20 % by the rounds and 0 % in the loop was read as a mistake."""
    wide = around(1000, (0.85, 1.0, 1.2, 1.0, 1.0, 1.0))
    found = attribute(800, wide, 5000, history=[STEADY | {"data_seconds": 1.09}])
    assert attribution.agreement(found) == (
        "The ways differ on data by 5 % of an epoch, within half the range of the rounds."
    )


def test_ways_that_differ_are_told() -> None:
    found = attribute(1000, 1000, 5000, no_allreduce=1600)
    assert not found["agreement"]["data"]["agree"]  # the steps saw 44 % of waiting
    said = attribution.agreement(found)
    assert "on data by 44 % of an epoch" in said
    # Not "trust neither": a share larger than that may stand in the sentence beside it.
    assert said.endswith("no figure is more certain than that.")


def test_what_a_framework_hides_is_empty_and_not_zero() -> None:
    hidden = STEADY | {"data_seconds": None}
    found = attribute(1000, 2300, 1100, history=[hidden])
    assert found["ways"]["steps"]["data"] is None and found["agreement"] == {}
    assert attribution.agreement(found) == "Only one way of measuring was possible."
    assert list(attribution.table(found).loc["data", ["minimum", "from the steps"]]) == [
        "45.2",
        "-",
    ]


def test_of_a_resumed_run_only_the_last_process_counts() -> None:
    early = STEADY | {"images_per_second": 5000.0, "train_seconds": 1.0, "data_seconds": 0.0}
    found = attribute(1000, 2300, 1100, history=[early, early, STEADY, STEADY], resumed_after=2)
    assert found["invalid"] is None and found["ways"]["steps"]["data"] == pytest.approx(0.44)
    found = attribute(1000, 2300, 1100, history=[early, early], resumed_after=2)
    assert found["invalid"] == "an earlier process trained every epoch"


def summary(**busy: float) -> pd.DataFrame:
    rows = [
        {"phase": phase, "device": device, "utilisation mean (%)": value}
        for device, value in busy.items()
        for phase, value in (("train", value), ("validate", 1.0))
    ]
    return pd.DataFrame(rows)


def test_gpus_that_idle_as_long_as_they_wait() -> None:
    found = attribute(1000, 2000, 1100, utilisation=summary(gpu0=40.0, gpus=48.0, host=90.0))
    assert found["devices_busy"] == {"device": "gpus", "busy": 0.48}
    assert found["agreement"]["GPUs idle"] == {"difference": pytest.approx(0.02), "agree": True}
    found = attribute(1000, 2000, 1100, utilisation=summary(gpus=95.0))
    assert not found["agreement"]["GPUs idle"]["agree"]


def test_without_gpus_the_host_is_shown_and_proves_nothing() -> None:
    found = attribute(1000, 2000, 1100, utilisation=summary(host=90.0))
    assert found["devices_busy"] == {"device": "host", "busy": 0.9}
    assert "GPUs idle" not in found["agreement"]
    assert attribution.table(found).loc["compute", "host busy in training"] == "90.0"
    assert attribution.table(found).loc["data", "host busy in training"] == "-"


REAL = {"nodes": 2, "simulated": False}
"""The section cluster of a run over two machines."""
SLOW_NETWORK = {"no_allreduce": 4000, "history": [STEADY | {"data_seconds": 0.0}]}


def test_between_machines_the_network_is_named() -> None:
    said = attribute(990, 1000, 5000, cluster=REAL, **SLOW_NETWORK)["sentence"]
    assert said.startswith(
        "The network between the nodes is the limit: the all-reduce takes 59 % of an epoch"
    )
    assert "4 GPUs processed 990 images/s" in said


@pytest.mark.parametrize("cluster", [None, REAL | {"simulated": True}, REAL | {"nodes": 1}])
def test_on_one_machine_there_is_no_network(cluster: Any) -> None:
    said = attribute(990, 1000, 5000, cluster=cluster, **SLOW_NETWORK)["sentence"]
    assert "network" not in said and "The all-reduce takes 59 % of an epoch" in said


def test_a_network_that_takes_less_than_compute_is_no_limit() -> None:
    quick = {"no_allreduce": 1500, "history": [STEADY | {"data_seconds": 0.0}]}
    said = attribute(990, 1000, 5000, cluster=REAL, **quick)["sentence"]
    assert not said.startswith("The network")
    assert "Over the network between the nodes the all-reduce takes 26 % of an epoch" in said
    # Files take most of the time, although the all-reduce takes more than computing.
    said = attribute(300, 1000, 310, cluster=REAL, no_allreduce=4000, history=[STEADY])["sentence"]
    assert said.startswith("The loader is the limit") and "Over the network" in said


def test_of_several_hosts_the_mean_is_how_busy_they_were() -> None:
    rows = {"phase": ["train"] * 3, "device": ["n1:host", "n2:host", "n2:other"]}
    summary = pd.DataFrame(rows | {"utilisation mean (%)": [40.0, 60.0, 99.0]})
    found = attribute(1000, 1010, 5000, utilisation=summary)
    assert found["devices_busy"] == {"device": "host", "busy": 0.5}
