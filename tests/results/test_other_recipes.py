"""Runs of other epochs, another batch size or other workers than the recipe's or than others'."""

from pathlib import Path
from typing import Any

import pytest
import records

from helpers.recipe import lookup
from helpers.results import caveats, comparison, conclusions, repeated_runs
from helpers.results.comparison import Comparison
from helpers.results.shared_settings import departures, unequal

EPOCHS = lookup("demo").epochs


def made(framework: str = "PyTorch", workers: int = 2, gpu: bool = True, **recipe: Any) -> Any:
    """A finished run's record, of the demo recipe with some of its fields changed."""
    batch = recipe.pop("batch_size", 64)
    changed = lookup("demo", **recipe).with_batch_size(batch).on(2)
    content = records.make(framework, gpu=gpu, recipe=changed.as_record())
    content["data"]["loader_workers"] = workers
    return content


def compared(tmp_path: Path, *contents: Any) -> Comparison:
    for number, content in enumerate(contents):
        records.save(tmp_path / str(number), content)
    return comparison.load([tmp_path / str(number) for number in range(len(contents))])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, ""),
        ({"epochs": 1}, f"epochs 1 instead of {EPOCHS}"),
        (
            {"batch_size": 16, "epochs": 90, "warmup_epochs": 0.5},
            f"epochs 90 instead of {EPOCHS}, batch per device 16 instead of 64, "
            "warm-up epochs 0.5 instead of 0",
        ),
    ],
)
def test_what_a_run_changed_of_its_recipe_is_a_remark(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    runs = compared(tmp_path, made(**changed), made("Keras", **changed))
    assert departures(runs.entries[0].content) == said and unequal(runs) is None
    remarks = list(caveats.remarks(runs).frame["remark"].items())
    assert (("every run", f"the recipe was changed: {said}") in remarks) == bool(said)
    # All of them did the same, so they are ranked as ever.
    assert conclusions.fastest(runs).verdict != "unknown"


def test_a_recipe_that_is_not_known_here_is_no_departure(tmp_path: Path) -> None:
    content = made(epochs=3)
    content["recipe"]["name"] = "somebody's"
    assert departures(content) == ""


@pytest.mark.parametrize(
    ("changed", "labels", "differ"),
    [
        ({"epochs": 1}, {"PyTorch 1 epoch", f"PyTorch {EPOCHS} epochs"}, f"epochs (1, {EPOCHS})"),
        (
            {"batch_size": 16},
            {"PyTorch 16 per device", "PyTorch 64 per device"},
            "batch per device (16, 64)",
        ),
        ({"warmup_epochs": 2}, {"PyTorch warm-up 0", "PyTorch warm-up 2"}, None),
    ],
)
def test_runs_of_the_recipe_and_others_are_no_repeats_and_not_ranked(
    tmp_path: Path, changed: dict[str, Any], labels: set[str], differ: str | None
) -> None:
    runs = compared(tmp_path, made(), made(**changed))
    summary = repeated_runs.summarise(runs)
    assert set(summary["label"]) == labels and list(summary["runs"]) == [1, 1]
    assert conclusions.fairness(runs).verdict == "only in part"
    fastest = conclusions.fastest(runs)
    if differ is None:  # the same work, in another order of learning rates
        assert fastest.verdict != "unknown"
        return
    sentence = f"These runs did not do the same work: they differ in {differ}."
    assert fastest.verdict == "unknown" and fastest.text.startswith(sentence)
    assert "speed is not ranked here" in conclusions.headline(runs)


def test_other_workers_are_remarked_and_not_parted(tmp_path: Path) -> None:
    runs = compared(tmp_path, made(workers=2), made("Keras", workers=8))
    remarks = caveats.remarks(runs).frame["remark"].to_dict()
    assert remarks["loader workers differ"] == "2 (PyTorch, 2 devices); 8 (Keras, 2 devices)"
    assert conclusions.fairness(runs).verdict == "yes"
    same = compared(tmp_path / "same", made(workers=2), made("Keras", workers=2))
    assert "loader workers differ" not in caveats.remarks(same).frame.index
