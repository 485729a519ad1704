"""Sections in any order: what came too early says what to run first, and nothing stale is kept."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.errors import UserError
from helpers.training.measured_run import Run
from helpers.training.sections import SECTIONS, Progress

WHOLE = [
    "check_fairness",
    "check_training_loop",
    "train",
    "test",
    "profile",
    "chart",
    "attribute_time",
    "finish",
]


def refused(progress: Progress, name: str) -> str:
    with pytest.raises(UserError) as error:
        progress.begin(name)
    assert "\n" not in str(error.value)
    return str(error.value)


def done(*names: str) -> Progress:
    progress = Progress()
    for name in names:
        progress.begin(name)
        progress.end(name)
    return progress


def test_in_the_notebooks_order_all_run() -> None:
    assert list(SECTIONS) == WHOLE
    progress = done(*WHOLE)
    assert progress.begin("finish") == []


@pytest.mark.parametrize(
    ("before", "name", "said"),
    [
        ([], "train", r"needs section 7 (the fairness check), section 9 (the training-loop check);"
            " run sections 7 and 9 first"),
        (["check_fairness"], "train", "(the training-loop check); run section 9 first"),
        (WHOLE[:2], "test", "section 10 (test) needs section 9 (training); run section 9 first"),
        (WHOLE[:2], "profile", "section 11 (measurements) needs section 9 (training); run"),
        (WHOLE[:3], "chart", "section 12 (utilisation) needs section 11 (measurements); run"),
        (WHOLE[:5], "attribute_time", "needs section 12 (utilisation); run section 12 first"),
        (WHOLE[:4], "finish", "needs section 11 (measurements), section 12 (utilisation), section "
            "13 (where the time went); run sections 11, 12 and 13 first"),
    ],
)  # fmt: skip
def test_too_early_says_what_to_run_first(before: list[str], name: str, said: str) -> None:
    assert said in refused(done(*before), name)


def test_what_is_of_an_earlier_training_has_to_run_again() -> None:
    progress = done(*WHOLE)
    records = progress.begin("train")
    assert {"epochs", "training", "test", "synthetic", "attribution", "monitor"} <= set(records)
    assert "fairness" not in records
    said = "section 10 (test) needs section 9 (training), which did not finish; run section 9 first"
    assert refused(progress, "test") == said
    progress.end("train")
    said = refused(progress, "finish")
    assert "section 10 (test), which is from before section 9 (training) was run again" in said
    assert said.endswith("run sections 10, 11, 12 and 13 first")


def test_another_test_leaves_the_measurements_valid() -> None:
    progress = done(*WHOLE)
    assert progress.begin("test") == ["test"]
    progress.end("test")
    progress.begin("finish")


def test_a_run_that_another_has_replaced_carries_nothing_out() -> None:
    progress = done(*WHOLE)
    progress.replaced = True
    for name in WHOLE:
        assert refused(progress, name).endswith("run all cells from section 3")


@pytest.mark.parametrize("name", WHOLE)
def test_every_section_of_a_run_is_watched(name: str) -> None:
    """Its own code is not even begun, and what it wrote before is taken out of the record."""
    removed: list[str] = []
    progress = Progress()
    run = SimpleNamespace(progress=progress, record=SimpleNamespace(remove=removed.append))
    run.check_parameters = lambda: None
    method: Callable[..., Any] = getattr(Run, name)
    if name != "check_fairness":  # which needs nothing
        with pytest.raises(UserError, match=rf"^section {SECTIONS[name].number} \("):
            method(run)
        assert not removed
