"""Which runs are ranked, by what, and how the headline says it: on CPUs and on GPUs."""

from pathlib import Path
from typing import Any

import gpumon_tools
import pytest
import records

from helpers.results import (
    charts,
    comparison,
    conclusions,
    learning_curves,
    report,
)
from helpers.results.comparability import kind
from helpers.results.comparison_tables import runs as all_runs
from helpers.results.machine_tables import hardware
from helpers.results.ranking import ranked, unranked
from helpers.results.repeated_runs import summarise
from helpers.results.scaling import speed

Runs = list[dict[str, Any]]


def load(folder: Path, runs: Runs) -> comparison.Comparison:
    """A batch of these runs, each in a folder of its own."""
    for number, content in enumerate(runs):
        records.save(folder / "new", content).rename(folder / f"run{number}")
    (folder / "new").rmdir()
    return comparison.load(folder)


def with_rounds(content: dict[str, Any], *rates: float) -> dict[str, Any]:
    """The run with these images/s in section 11's rounds on files."""
    low, high = min(rates), max(rates)
    middle = sorted(rates)[len(rates) // 2]
    content["files"] |= {
        "rounds": list(rates),
        "low": low,
        "high": high,
        "images_per_second": middle,
    }
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
    assert conclusions.headline(compared) == (
        "On this CPU (2 devices of 1 core each), PyTorch and Keras train fastest; all three are "
        "fairly compared; the second device adds 88 %."
    )
    first = conclusions.fastest(compared)
    assert first.verdict == "PyTorch and Keras"
    assert "adds 88 % (81 to 96) to PyTorch" in first.text
    assert list(all_runs(compared).frame.index) == [
        f"{label}, {count}"
        for label in ("PyTorch", "Keras", "TensorFlow")
        for count in ("1 device", "2 devices")
    ]
    assert speed.table(compared).frame["efficiency"]["TensorFlow"] == "94 % (90 to 98)"
    assert "cores 0 and 1, 1 thread each" in hardware(compared).frame.to_string()
    report.write(tmp_path)
    text = (tmp_path / report.MARKDOWN).read_text("utf-8")
    assert text.count("CPU results say nothing about GPUs") == 1
    assert "not ranked" not in text and "share cores" not in text


def test_loader_workers_elsewhere_are_no_repeats(tmp_path: Path) -> None:
    runs = [records.make("PyTorch", 1, cores=2) for _ in range(2)]
    for content, place in zip(runs, ("device", "own"), strict=True):
        content["recipe"]["loader_cores"] = place
    assert {entry.label for entry in load(tmp_path, runs).entries} == {
        "PyTorch workers on its cores",
        "PyTorch workers on cores of their own",
    }


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


@pytest.mark.parametrize(
    ("changed", "differ"),
    [
        ({"devices": {"names": ["NVIDIA A100"] * 2}}, "GPU (NVIDIA A100, NVIDIA H100)"),
        ({"hardware": {"cpu": "B CPU"}}, "CPU (A CPU of 2, B CPU of 2 logical cores)"),
    ],
)
def test_gpus_of_two_machines_are_never_in_one_ranking(
    changed: dict[str, Any], differ: str, tmp_path: Path
) -> None:
    runs = [records.make(name, gpu=True) for name in ("Keras", "PyTorch")]
    for section, given in changed.items():
        runs[1][section] |= given
    compared = load(tmp_path, runs)
    assert ranked(compared) == ()
    assert f"not ranked, because they differ in {differ}." in str(unranked(compared))
    assert "fastest" not in conclusions.headline(compared)


def test_gpus_and_cpus_are_never_in_one_ranking(tmp_path: Path) -> None:
    runs = [records.make("Keras", speed=10, gpu=True), *on_cores()]
    compared = load(tmp_path, runs)
    assert [entry.label for entry in ranked(compared)] == ["Keras on NVIDIA H100"]
    assert conclusions.headline(compared).startswith("On 2 NVIDIA H100, Keras")
    assert "CPU results" not in conclusions.fastest(compared).text
    assert learning_curves.table(compared).frame.index[0] == "Keras on NVIDIA H100, 2 devices"


@pytest.mark.parametrize(
    ("cpu", "cores", "why"),
    [
        ("Another CPU", 1, "they differ in CPU (A CPU of 2, Another CPU of 2 logical cores)."),
        ("A CPU", 2, "they differ in cores per device (1, 2)."),
    ],
)
def test_cpu_runs_rank_only_on_one_cpu_with_equal_devices(
    tmp_path: Path, cpu: str, cores: int, why: str
) -> None:
    runs = [records.make("PyTorch", cores=1), records.make("PyTorch", cores=cores, speed=10)]
    runs[1]["hardware"]["cpu"] = cpu
    compared = load(tmp_path, runs)
    assert unranked(compared) == f"CPU runs are not ranked, because {why}"
    assert conclusions.fastest(compared).verdict == conclusions.UNRANKED
    assert list(summarise(compared)["runs"]) == [1, 1]  # nor are they repeats of each other
    assert list(learning_curves.table(compared).frame.index) == [e.run for e in compared.entries]


def test_the_metric_is_the_rate_of_the_rounds_and_not_the_total_time(tmp_path: Path) -> None:
    slow = with_rounds(records.make("Keras", gpu=True, speed=100), 150, 155, 160)
    compared = load(tmp_path, [slow, records.make("PyTorch", gpu=True, speed=130)])
    assert conclusions.fastest(compared).verdict == "Keras"
    assert list(all_runs(compared).frame.index) == ["Keras, 2 devices", "PyTorch, 2 devices"]
    first, below = (records.drawn(c) for c in (charts.first(compared), charts.throughput(compared)))
    for figure, names in ((first, ["Keras", "PyTorch"]), (below, ["Keras, 2", "PyTorch, 2"])):
        axes = figure.axes[0]
        assert axes.get_xscale() == "linear" and axes.get_xlim()[0] == 0
        labels = [text.get_text().split(" dev")[0] for text in axes.get_yticklabels()]
        assert labels == names


def test_a_framework_is_fastest_only_where_its_interval_is_clear(tmp_path: Path) -> None:
    fast = with_rounds(records.make("Keras", gpu=True), 95, 110, 120)
    near = with_rounds(records.make("PyTorch", gpu=True), 80, 90, 96)
    far = with_rounds(records.make("Chainer", gpu=True), 80, 90, 94)
    said = conclusions.fastest(load(tmp_path, [fast, near, far]))
    assert said.verdict == "Keras and PyTorch"
    assert "no significant difference from PyTorch 90.0 (80.0 to 96.0)" in said.text


def test_one_odd_round_does_not_widen_the_interval_of_repeats(tmp_path: Path) -> None:
    """The medians of the runs are 100, 104 and 98."""
    runs = [
        with_rounds(records.make(gpu=True), *rates)
        for rates in ((90, 100, 101), (99, 104, 130), (97, 98, 99))
    ]
    row = summarise(load(tmp_path, runs)).iloc[0]
    ends = ("", "_low", "_high")
    assert [row[f"images_per_second{end}"] for end in ends] == [100.0, 97.0, 104.0]


def test_a_second_device_without_a_significant_gain_adds_nothing(tmp_path: Path) -> None:
    runs = [records.make(devices=count, cores=1, speed=99 + count) for count in (1, 2)]
    line = conclusions.headline(load(tmp_path, runs))
    assert line.endswith("the second device adds nothing significant.")


def test_what_shares_cores_scales_nothing_beside_what_has_its_own(tmp_path: Path) -> None:
    runs = [*on_cores(("PyTorch",)), records.make(devices=1), records.make(devices=2, speed=150)]
    compared = load(tmp_path, runs)
    assert set(speed.numbers(compared)["label"]) == {"PyTorch 1 core per device"}


def test_lanes_end_with_training(tmp_path: Path) -> None:
    folder = records.save(tmp_path, records.make())
    marks: Any = (
        ("train", 2.0, 10.0, {"epoch": 1}),
        ("validate", 10.0, 12.0, {"epoch": 1}),
        ("test", 12.0, 20.0, {}),
    )
    gpumon_tools.write(folder / "trace", {"gpu0": [50.0] * 30}, marks=marks)
    (trace,) = charts.traces(comparison.load(tmp_path))[0].values()
    recording = trace.recording
    assert recording.end == 12.0 and max(recording.times) <= 12.0
    assert {mark.name for mark in recording.marks} == {"train", "validate"}
    assert {len(column) for column in recording.columns} == {len(recording.times)}
