from typing import Any

import pandas as pd
import pytest

from helpers import attribution

FIRST = {
    "images_per_second": 80.0,
    "train_seconds": 100.0,
    "valid_seconds": 1.0,
    "data_seconds": 50.0,
    "sync_seconds": 9.0,
}
"""The first epoch, with tracing."""
STEADY = FIRST | {
    "images_per_second": 1000.0,
    "train_seconds": 8.0,
    "valid_seconds": 2.0,
    "data_seconds": 4.4,
    "sync_seconds": 0.4,
}


def attribute(real: float, synthetic: float, loader: float, **given: Any) -> dict[str, Any]:
    given = {"epochs": [FIRST, STEADY, STEADY], "devices": "4 GPUs"} | given
    found = attribution.attribute(
        given.pop("epochs"), real=real, synthetic=synthetic, loader=loader, **given
    )
    assert sum(found["shares"].values()) == pytest.approx(1)
    return found


def test_loader_bound() -> None:
    found = attribute(1000, 2300, 1100, format="png")
    assert found["shares"]["validation"] == pytest.approx(0.2)
    assert found["shares"]["data"] == pytest.approx(0.8 * (1 - 1000 / 2300))
    assert found["shares"]["synchronisation"] == 0
    assert found["sentence"].startswith("The loader is the limit")
    assert "1,100" in found["sentence"] and "4 GPUs could take 2,300" in found["sentence"]
    assert found["sentence"].endswith(
        "add workers or use JPEG files (data-prep resize --format jpeg)."
    )
    assert "JPEG" not in attribute(1000, 2300, 1100, format="packed")["sentence"]


def test_compute_bound() -> None:
    found = attribute(990, 1000, 5000)
    assert found["shares"]["compute"] > 0.78
    assert found["sentence"].startswith("Compute is the limit")


def test_faster_than_synthetic_is_noise_not_negative_time() -> None:
    assert attribute(1010, 1000, 5000)["shares"]["data"] == 0


def test_neither_alone_is_the_limit() -> None:
    assert "hinder each other" in attribute(500, 1000, 1200)["sentence"]


def test_slower_on_files_without_waiting_for_them_is_not_the_loader() -> None:
    slow = STEADY | {"data_seconds": 0.1, "train_seconds": 16.0, "images_per_second": 500.0}
    epochs = [FIRST, STEADY | {"data_seconds": 0.1}, slow]
    said = attribute(500, 1000, 1200, epochs=epochs)["sentence"]
    assert said.startswith("Compute is the limit") and "hinder" not in said
    assert "waiting for batches took only 1% of an epoch" in said
    assert "epochs ran at 500 to 1,000 images/s" in said


def test_synchronisation_is_what_silence_saves() -> None:
    found = attribute(1000, 1000, 5000, silent=1600)
    assert found["shares"]["synchronisation"] == pytest.approx(0.8 * (1 - 1000 / 1600))
    assert "The all-reduce takes 30% of an epoch" in found["sentence"]


def test_the_ways_agree_where_they_measure_the_same() -> None:
    found = attribute(1000, 2300, 1100, silent=2500)
    steps, ablation = found["ways"]["steps"], found["ways"]["ablation"]
    assert steps["data"] == pytest.approx(0.44) and ablation["data"] == pytest.approx(
        0.452, abs=0.001
    )
    assert steps["synchronisation"] == pytest.approx(0.04)
    assert sum(steps.values()) == pytest.approx(1)
    assert found["agreement"]["data"]["agree"] and found["agreement"]["synchronisation"]["agree"]
    assert attribution.agreement(found) == "The ways agree on data and synchronisation."


def test_ways_that_differ_are_told() -> None:
    found = attribute(1000, 1000, 5000, silent=1600)
    assert not found["agreement"]["data"]["agree"]  # the steps saw 44 % of waiting
    said = attribution.agreement(found)
    assert "on data by 44% of an epoch and on synchronisation by 26%" in said


def test_what_a_framework_hides_is_empty_and_not_zero() -> None:
    hidden = STEADY | {"data_seconds": None, "sync_seconds": None}
    found = attribute(1000, 2300, 1100, epochs=[hidden])
    assert found["ways"]["steps"]["data"] is None and found["agreement"] == {}
    assert attribution.agreement(found) == "Only one way could be measured."
    assert attribution.table(found).loc["data"].isna().sum() == 1


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
    assert attribution.table(found).loc["compute", "host busy in training"] == 90.0
