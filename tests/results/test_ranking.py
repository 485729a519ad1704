"""Which runs are ranked, by what, and how the headline says it: on CPUs and on GPUs."""

from pathlib import Path
from typing import Any

import pytest
import records

from helpers.record.sections import throughput
from helpers.results import caveats, charts, comparison, conclusions, scaling
from helpers.results.comparability import kind
from helpers.results.comparison_tables import runs as all_runs
from helpers.results.machine_tables import machine
from helpers.results.ranking import ranked, unranked
from helpers.results.repeated_runs import summarise

Runs = list[dict[str, Any]]


def load(folder: Path, runs: Runs) -> comparison.Comparison:
    return comparison.load(records.save_each(folder, runs))


def with_rounds(content: dict[str, Any], *rates: float) -> dict[str, Any]:
    """The run with these images/s in its measured rounds on files."""
    content["files"] |= throughput(rates)
    return content


def on_cores(names: tuple[str, ...] = ("PyTorch", "Keras", "TensorFlow"), **given: Any) -> Runs:
    """One and two devices of one core: the first two frameworks 88 % faster on two."""
    return [
        records.make(name, count, cores=1, speed=(50 if name == "TensorFlow" else 100) * times)
        | given
        for name in names
        for count, times in ((1, 1.0), (2, 1.88))
    ]


def test_cpu_devices_with_cores_of_their_own_are_ranked(tmp_path: Path) -> None:
    compared = load(tmp_path, on_cores())
    headline = conclusions.headline(compared)
    assert headline == "PyTorch and Keras are level in time and in steady state."
    assert conclusions.fastest(compared).verdict == "PyTorch and Keras"
    more = conclusions.answers(compared)[-1]
    assert more.question == "More devices" and "steady state x 1.88" in more.verdict
    assert list(all_runs(compared).frame.index) == [
        f"{label}{count}"
        for count in ("", ", 1 device")
        for label in ("PyTorch", "Keras", "TensorFlow")
    ]
    assert scaling.table(compared).frame["efficiency"]["TensorFlow"] == "94 %"
    assert "cores 0 and 1, 1 thread each" in machine(compared).frame.to_string()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"cores": 1}, "cpu"),
        ({}, "shared cores"),
        ({"cores": 1, "cluster": records.world(2)}, "simulated"),
        ({"cores": 1, "cluster": records.world(2, virtual=False)}, "cpu"),
        ({"gpu": True}, "gpu"),
    ],
)
def test_the_kinds_of_devices(given: dict[str, Any], expected: str) -> None:
    assert kind(records.make(**given)) == expected


def test_a_core_of_two_devices_is_shared_but_not_that_of_two_machines(tmp_path: Path) -> None:
    content = records.make(cores=2)
    content["devices"]["cpus"][1]["cores"] = [1, 2]
    assert kind(content) == "shared cores"
    assert kind(content | {"cluster": records.world(2, virtual=False)}) == "cpu"
    content["devices"]["cpus"].pop()
    assert kind(content) == "shared cores"  # of one device nothing is known
    assert "no cores of their own" in (unranked(load(tmp_path, [content])) or "")


CPUS = "CPU (A CPU of 2 logical cores, B CPU of 2 logical cores)"
GPUS = "GPU (NVIDIA A100, NVIDIA H100)"


@pytest.mark.parametrize(
    ("one", "other", "changed", "differ"),
    [
        ({"gpu": True}, {"gpu": True}, {"devices": {"names": ["NVIDIA A100"] * 2}}, GPUS),
        ({"gpu": True}, {"gpu": True}, {"hardware": {"cpu": "B CPU"}}, CPUS),
        ({"cores": 1}, {"cores": 1}, {"hardware": {"cpu": "B CPU"}}, CPUS),
        ({"cores": 1}, {"cores": 2}, {}, "cores per device (1, 2)"),
    ],
)
def test_runs_on_unequal_devices_are_not_ranked_nor_repeats(
    tmp_path: Path, one: Any, other: Any, changed: dict[str, Any], differ: str
) -> None:
    runs = [records.make("PyTorch", **one), records.make("PyTorch", speed=10, **other)]
    for section, given in changed.items():
        runs[1][section] |= given
    compared = load(tmp_path, runs)
    assert ranked(compared) == ()
    assert f"not ranked, because they differ in {differ}." in str(unranked(compared))
    assert "fastest" not in conclusions.headline(compared)
    assert list(summarise(compared)["runs"]) == [1, 1]


def test_gpus_and_cpus_are_never_in_one_ranking(tmp_path: Path) -> None:
    runs = [records.make("Keras", speed=10, gpu=True), *on_cores()]
    compared = load(tmp_path, runs)
    assert [entry.label for entry in ranked(compared)] == ["Keras on NVIDIA H100"]
    assert conclusions.headline(compared).startswith("Keras on NVIDIA H100 trains in ")
    assert "CPU results" not in conclusions.fastest(compared).text


def timed(name: str, first: float, later: float, seed: int = 0, **given: Any) -> dict[str, Any]:
    """A run whose first epoch trains at one rate and the others at another."""
    content = records.make(name, gpu=True, speed=later, **given)
    content["recipe"]["seed"] = seed
    content["run"]["variant"] = f"seed{seed}"
    epochs = content["epochs"]
    epochs[0] |= {"images_per_second": first, "train_seconds": epochs[0]["images"] / first}
    seconds = sum(epoch["train_seconds"] + epoch["valid_seconds"] for epoch in epochs)
    content["training"]["seconds"] = seconds
    return content


def test_training_time_comes_first_and_steady_state_is_the_epochs(tmp_path: Path) -> None:
    """Keras compiles for long, and its rounds are the fastest of all."""
    slow = with_rounds(timed("Keras", first=10, later=100), 125, 130, 135)
    runs = [slow, timed("PyTorch", 100, 100), timed("Chainer", 125, 125), timed("JAX", 20, 200)]
    compared = load(tmp_path, runs)
    assert conclusions.fastest(compared).verdict == "Chainer"
    said = conclusions.headline(compared)
    assert said == "Chainer finishes first; in steady state JAX is fastest."
    order = ["Chainer", "PyTorch", "JAX", "Keras"]
    table = all_runs(compared).frame
    assert list(table.index) == order
    assert list(table.columns)[:2] == ["training (s)", "images/s"]
    assert table["images/s"]["Keras"] == "100"
    axes = records.drawn(charts.parts(compared)).axes[0]
    assert axes.get_xscale() == "linear" and axes.get_xlim()[0] == 0
    assert [text.get_text() for text in axes.get_yticklabels()] == order


def test_the_time_to_the_target_is_a_measure_where_the_recipe_has_one(tmp_path: Path) -> None:
    runs = [timed("PyTorch", 100, 100, auc=0.70), timed("Keras", 80, 80, auc=0.80)]
    for content in runs:
        content["recipe"]["quality_targets"] = [0.65, 0.99]
    compared = load(tmp_path, runs)
    table = all_runs(compared).frame
    assert list(table.columns)[:3] == ["training (s)", "to AUC 0.65 (s)", "images/s"]
    # Four epochs at 100 images/s against one at 80.
    assert list(table["to AUC 0.65 (s)"]) == ["45.0", "13.8"]
    assert conclusions.fastest(compared).verdict == "PyTorch"


@pytest.mark.parametrize(
    ("rounds", "flagged"),
    [
        ((178, 175, 180), True),  # they leave out work
        ((62, 60, 65), True),  # another program was there
        ((130, 125, 135), False),
        ((178, 95, 180), False),  # too wide to contradict the epochs
    ],
)
def test_a_run_whose_rounds_contradict_its_epochs_is_not_ranked(
    rounds: tuple[float, ...], flagged: bool, tmp_path: Path
) -> None:
    runs = [with_rounds(timed("PyTorch", 100, 100), *rounds), timed("Keras", 50, 50)]
    compared = load(tmp_path, runs)
    assert conclusions.fastest(compared).verdict == ("Keras" if flagged else "PyTorch")
    assert (summarise(compared)["flags"][0] != ()) == flagged
    said = caveats.remarks(compared).frame["remark"]
    assert any("the rate of its epochs" in line for line in said) == flagged


def test_a_disturbed_run_leaves_its_repeats_ranked(tmp_path: Path) -> None:
    runs = [timed("PyTorch", rate, rate, seed) for seed, rate in enumerate((100, 102, 20))]
    runs += [timed("Keras", 50, 50, seed) for seed in range(3)]
    runs[2]["other_programs"] = {"used": 1.5, "cores": 2, "reason": ""}
    compared = load(tmp_path, runs)
    assert conclusions.fastest(compared).verdict == "PyTorch"
    row = summarise(compared).iloc[0]
    assert (row["runs"], row["flags"]) == (2, ()) and row["images_per_second_low"] == 100
    alone = load(tmp_path / "alone", runs[2:])
    assert conclusions.fastest(alone).verdict == "Keras"


def test_a_single_epoch_contradicts_no_rounds(tmp_path: Path) -> None:
    content = with_rounds(timed("PyTorch", 20, 100), 100, 101)
    content["epochs"] = content["epochs"][:1]
    content["training"]["images_per_second"] = 20.0
    compared = load(tmp_path, [content, timed("Keras", 10, 10)])
    assert conclusions.fastest(compared).verdict == "PyTorch"
    assert any("one epoch" in line for line in caveats.remarks(compared).frame["remark"])


def test_what_shares_cores_scales_nothing_beside_what_has_its_own(tmp_path: Path) -> None:
    runs = [*on_cores(("PyTorch",)), records.make(devices=1), records.make(devices=2, speed=150)]
    compared = load(tmp_path, runs)
    assert set(scaling.numbers(compared)["label"]) == {"PyTorch 1 core per device"}


@pytest.mark.parametrize(("rate", "unit", "of_it"), [(100, "seconds", 1), (10, "minutes", 60)])
def test_a_runs_bars_end_at_its_time_in_the_axis_unit(
    rate: float, unit: str, of_it: int, tmp_path: Path
) -> None:
    content = timed("PyTorch", rate, rate)
    axes = records.drawn(charts.parts(load(tmp_path, [content]))).axes[0]
    assert axes.get_xlabel().startswith(f"{unit} on")
    bars: Any = axes.patches
    end = max(bar.get_x() + bar.get_width() for bar in bars)
    assert end == pytest.approx(content["training"]["seconds"] / of_it)
