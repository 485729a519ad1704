"""What has to agree between runs: a difference in each of it is told, and in nothing else."""

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import records

from helpers.results import learning_curves
from helpers.results.comparison import Entry
from helpers.results.shared_settings import MUST_AGREE, differences, unequal

OTHER: dict[str, tuple[str, str, Any]] = {
    "machine": ("run", "host", "another"),
    "kind of device": ("hardware", "gpus", ["NVIDIA H100", "NVIDIA H100"]),
    "recipe": ("recipe", "name", "chexnet"),
    "crop in pixels": ("recipe", "crop", 33),
    "epochs": ("recipe", "epochs", 6),
    "batch per device": ("recipe", "batch_size", 65),
    "learning rate per device": ("recipe", "learning_rate", 1.0000001e-4),
    "warm-up epochs": ("recipe", "warmup_epochs", 0.5),
    "task": ("recipe", "task", "multiclass"),
    "network": ("recipe", "network", "resnet50"),
    "reader": ("recipe", "reader", "table"),
    "custom code": ("recipe", "code", {"mine.py": "0" * 64}),
    "optimiser": ("recipe", "weight_decay", 1e-4),
    "learning rate over epochs": ("recipe", "lr_milestones", [2]),
    "precision": ("recipe", "precision", "bf16"),
    "execution": ("recipe", "execution", "compiled"),
    "seed": ("recipe", "seed", 1),
    "images and labels": ("data", "sha256", "f" * 64),
    "number of images": ("data", "images", {"train": 1121, "valid": 160, "test": 320}),
    "initial weights": ("weights", "sha256", "f" * 64),
}
"""For each row of the table a field of the record, and another value for it."""


def entry(framework: str = "PyTorch", devices: int = 2, **fields: Any) -> Entry:
    """A run as it is compared; ``fields`` replace some of its record's, ``section__field``."""
    content = copy.deepcopy(records.make(framework, devices))
    for name, value in fields.items():
        section, _, field = name.partition("__")
        content[section][field] = value
    return Entry(Path(framework), content)


def told(*entries: Entry) -> dict[str, str]:
    found = differences(entries)
    assert len(dict(found)) == len(found)
    return dict(found)


def test_nothing_is_told_of_runs_that_agree() -> None:
    assert differences([]) == []
    assert differences([entry()]) == []
    assert differences([entry(), entry("Keras"), entry("Chainer", devices=1)]) == []


def test_every_row_is_tried() -> None:
    assert OTHER.keys() == MUST_AGREE.keys()


@pytest.mark.parametrize("what", OTHER)
def test_a_difference_is_told_of_what_differs_alone(what: str) -> None:
    section, field, value = OTHER[what]
    said = told(entry(), entry("Keras", **{f"{section}__{field}": value}), entry("Chainer"))
    assert list(said) == [f"{what} differs"]
    (words,) = said.values()
    assert words.startswith("not comparable: ")
    assert "(PyTorch, 2 devices, Chainer, 2 devices)" in words and "(Keras, 2 devices)" in words


OTHER_WORK = (
    *("recipe", "crop in pixels", "epochs", "batch per device", "number of images"),
    *("task", "network", "reader", "optimiser", "custom code"),
)


@pytest.mark.parametrize("what", OTHER_WORK)
def test_runs_that_did_other_work_are_not_ranked(what: str) -> None:
    section, field, value = OTHER[what]
    pair = [entry(), entry("Keras", **{f"{section}__{field}": value})]
    said = unequal(SimpleNamespace(finished=pair))  # type: ignore[arg-type]
    assert said is not None and f"they differ in {what} (" in said
    assert unequal(SimpleNamespace(finished=pair[:1])) is None  # type: ignore[arg-type]


def test_the_number_and_order_of_gpus_is_no_other_kind() -> None:
    one, four = entry(hardware__gpus=["B", "A"]), entry(hardware__gpus=["A", "B", "A", "B"])
    assert differences([one, four]) == []


def of_seed(seed: int, framework: str = "PyTorch", devices: int = 2, **fields: Any) -> Entry:
    """A run of a sweep: the seed decides the split and the weights."""
    following = {
        "recipe__seed": seed,
        "data__images": {"train": 1120 - seed, "valid": 160, "test": 320 + seed},
        "weights__sha256": f"{seed + 1:064}"[::-1],
    }
    return entry(framework, devices, **following | fields)


def test_a_sweep_of_seeds_is_no_difference_nor_what_follows_from_the_seed() -> None:
    runs = [of_seed(s, f, d) for s in (0, 1) for f in ("PyTorch", "Keras") for d in (1, 2)]
    assert differences(runs) == []


@pytest.mark.parametrize("missing", [("PyTorch", 1), ("Keras", 2)])
def test_it_is_a_sweep_only_where_all_took_part_on_every_number_of_devices(
    missing: tuple[str, int],
) -> None:
    runs = [
        of_seed(s, f, d)
        for s in (0, 1)
        for f in ("PyTorch", "Keras")
        for d in (1, 2)
        if (s, f, d) != (1, *missing)
    ]
    assert set(told(*runs)) == {
        "seed differs",
        "number of images differs",
        "initial weights differs",
    }


def test_within_a_seed_of_a_sweep_everything_agrees() -> None:
    whole = [of_seed(s, f) for s in (0, 1) for f in ("PyTorch", "Keras")]
    other = of_seed(1, "Chainer", weights__sha256="f" * 64)
    assert told(*whole, of_seed(0, "Chainer"), other) == {
        "initial weights differs": "not comparable: random 200000000000 "
        "(PyTorch, 2 devices, Keras, 2 devices); random ffffffffffff (Chainer, 2 devices)"
    }


def batches(framework: str, devices: int, first: str, loss: float) -> dict[str, Any]:
    """A record of a run that trained on these first batches, with a loss this much higher."""
    content = records.make(framework, devices)
    content["training"]["first_batches"] = list(first)
    for epoch in content["epochs"]:
        epoch["train_loss"] *= 1 + loss
    return content


def test_equal_batches_are_said_with_how_far_losses_are_apart_and_another_is_named(
    tmp_path: Path,
) -> None:
    """A run that recorded fewer is compared as far as they go, and not with other devices."""
    contents = [batches("PyTorch", 2, "abcd", 0.0), batches("JAX", 2, "ab", 0.01)]
    contents.append(batches("JAX", 1, "xy", 0.5))
    said = learning_curves.on_same_batches(records.load(tmp_path, *contents).finished)
    assert "their first 2 are equal" in said and "differ by 1.0 % at most" in said
    other = [batches("Keras", 2, "abcd", 0.0), batches("Chainer", 2, "abxd", 0.0)]
    said = learning_curves.on_same_batches(records.load(tmp_path / "other", *other).finished)
    assert said == "Chainer trained on other batches than the other runs."
