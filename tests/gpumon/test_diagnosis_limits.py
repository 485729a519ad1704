"""The rules of the diagnosis at their edges: little known, few samples, many GPUs, limits."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from gpumon_tools import Marks, write

import gpumon
from gpumon import diagnosis

Values = list[float | None]
TRAIN: Marks = (("train", 0.0, 20.0, {}),)
FULL: Values = [99.0] * 20
FILLED: dict[str, Values] = {"gpu0/SM activity (%)": [80.0] * 20}


def found(
    path: Path,
    gpus: dict[str, Values],
    more: dict[str, Values] | None = None,
    marks: Marks = TRAIN,
    **others: Any,
) -> diagnosis.Diagnosis | None:
    """What is said of ``train`` in a trace of these values, a second each."""
    trace = gpumon.read(write(path / "t", gpus, more=more, marks=marks, **others))
    return {one.phase: one for one in trace.diagnosis()}.get("train")


def kind(*arguments: Any, **named: Any) -> str | None:
    one = found(*arguments, **named)
    return one.kind if one else None


def first(value: float, count: int = 2) -> Values:
    """Known for so many seconds of 20."""
    return [*[value] * count, *[None] * (20 - count)]


def memory(share: float, faults: float) -> dict[str, Values]:
    return {
        "process/memory allowance used (MiB)": [20 * share] * 20,
        "process/memory allowance (MiB)": [2000.0] * 20,
        "process/major page faults (1/s)": [faults] * 20,
    }


def cpu(share: float) -> dict[str, Values]:
    return {
        "process/CPU allowance used (%)": [share] * 20,
        "process/CPU allowance (cores)": [2.0] * 20,
    }


PARTLY: dict[str, tuple[dict[str, Values], dict[str, Values], str | None]] = {
    "utilisation": ({"gpu0": first(99.0)}, FILLED, None),
    "activity, ok": ({"gpu0": FULL}, {"gpu0/SM activity (%)": first(80.0)}, None),
    "activity, low_occupancy": ({"gpu0": FULL}, {"gpu0/SM activity (%)": first(20.0)}, None),
    "reasons": ({"gpu0": FULL}, {**FILLED, "gpu0/throttle reasons (bits)": first(64.0)}, "ok"),
    "others": (
        {"gpu0": FULL},
        {
            **FILLED,
            "gpu0/other processes (count)": [1.0] * 20,
            "gpu0/SM use others (%)": first(50.0),
        },
        None,
    ),
    "memory": (
        {"gpu0": [30.0] * 20},
        {**memory(97, 850), "process/memory allowance used (MiB)": first(1940.0)},
        None,
    ),
    "faults": (
        {"gpu0": [30.0] * 20},
        {**memory(97, 850), "process/major page faults (1/s)": first(850.0)},
        None,
    ),
}


@pytest.mark.parametrize("what", PARTLY)
def test_what_is_known_for_a_tenth_of_a_phase_bears_no_sentence(tmp_path: Path, what: str) -> None:
    gpus, more, expected = PARTLY[what]
    assert kind(tmp_path, gpus, more) == expected


def test_power_and_cpu_that_are_hardly_known_bear_no_sentence(tmp_path: Path) -> None:
    for key, value, busy in (("gpu0/power (W)", 600.0, 99.0), ("host/cpu (%)", 97.0, 30.0)):
        trace = gpumon.read(write(tmp_path / "t", {"gpu0": [busy] * 20}, marks=TRAIN))
        column = trace.recording.columns[trace.recording.keys.index(key)]
        column[:] = column[:0].__class__("d", [value] * 20)
        assert len(trace.diagnosis()) == 1, key
        column[2:] = column[:0].__class__("d", [math.nan] * 18)
        assert not trace.diagnosis(), key


def test_a_phase_of_few_samples_is_not_judged(tmp_path: Path) -> None:
    """Sampled every 10 s, the value that a phase begins with is of what was before it."""
    for samples, expected in ((5, None), (9, None), (10, "ok")):
        busy: Values = [*[99.0] * samples, 5.0, 5.0, 5.0]
        more: dict[str, Values] = {"gpu0/SM activity (%)": [80.0] * len(busy)}
        marks: Marks = (("train", 0.0, 10.0 * samples, {}),)
        assert kind(tmp_path, {"gpu0": busy}, more, marks, step=10.0) == expected


def test_gpus_that_take_no_part_are_not_among_those_of_the_sentence(tmp_path: Path) -> None:
    shapes: list[tuple[Values, dict[str, Values] | None]] = [
        ([40.0] * 20, cpu(97)),
        ([80.0, 0.0] * 10, None),
    ]
    for shape, more in shapes:
        gpus: dict[str, Values] = {f"gpu{n}": shape if n < 2 else [0.0] * 20 for n in range(8)}
        one = found(tmp_path, gpus, more)
        assert one and "the 2 GPUs in use " in one.sentence
        one = found(tmp_path, {name: gpus[name] for name in ("gpu0", "gpu1")}, more)
        assert one and "the 2 GPUs " in one.sentence and "in use" not in one.sentence


def test_several_gpus_have_at_least_the_pauses_of_the_one_that_has_least(tmp_path: Path) -> None:
    gpus: dict[str, Values] = {
        "gpu0": [80.0, 80.0, 80.0, 0.0, 0.0, 0.0, 80.0, 80.0, 80.0, 80.0] * 6,
        "gpu1": [80.0, 80.0, 80.0, 0.0, 80.0] * 12,
    }
    marks: Marks = (("train", 0.0, 60.0, {}),)
    one = found(tmp_path, gpus, marks=marks)
    assert one and one.figures["pauses (count)"] == 6
    assert one.sentence.startswith(
        "the 2 GPUs had no work for at least 20 % of the time, in at least 6 pauses, while"
    )


def held(seconds: int, clock: float, count: int = 100) -> dict[str, Values]:
    """A full GPU of whose 100 s heat took so many, down to a clock."""
    return {
        "gpu0/SM activity (%)": [80.0] * count,
        "gpu0/throttle reasons (bits)": [*[64.0] * seconds, *[0.0] * (count - seconds)],
        "gpu0/SM clock (MHz)": [*[clock] * seconds, *[2000.0] * (count - seconds)],
    }


def others(share: float) -> dict[str, Values]:
    return {
        **FILLED,
        "gpu0/SM use others (%)": [share] * 20,
        "gpu0/other processes (count)": [1.0] * 20,
    }


def active(share: float) -> dict[str, Values]:
    return {"gpu0/SM activity (%)": [share] * 20}


def busy(*shares: float) -> dict[str, Values]:
    return {f"gpu{place}": [share] * 20 for place, share in enumerate(shares)}


def pauses(count: int, work: int) -> dict[str, Values]:
    """A second's pause after so many of work, again and again, and work at the end."""
    return {"gpu0": [*[*[80.0] * work, 0.0] * count, 80.0]}


EDGES: dict[str, tuple[dict[str, Values], dict[str, Values], dict[str, Values], str | None]] = {
    "shared": (busy(99), others(4.9), others(5), "ok"),
    "swapping, memory": (busy(30), memory(89.9, 100), memory(90, 100), None),
    "swapping, faults": (busy(30), memory(90, 99.9), memory(90, 100), None),
    "input_bound, CPU": (busy(60), cpu(89.9), cpu(90), None),
    "low_occupancy": (busy(90), active(50), active(49.9), "ok"),
    "ok": (busy(90), active(49.9), active(50), "low_occupancy"),
}
BUSY_EDGES: dict[str, tuple[dict[str, Values], dict[str, Values], dict[str, Values]]] = {
    "input_bound": (busy(60.1), busy(60), cpu(90)),
    "imbalanced": (busy(50, 37.6), busy(50, 37.5), {}),
    "imbalanced ": (busy(49.9, 30), busy(50, 30), {}),
    "low_occupancy": (busy(89.9), busy(90), active(30)),
    "ok": (busy(99, 89.9), busy(99, 90), {**active(80), "gpu1/SM activity (%)": [80.0] * 20}),
    "ok ": (busy(99, 4.9), busy(99, 99), {**active(80), "gpu1/SM activity (%)": [80.0] * 20}),
}


@pytest.mark.parametrize("rule", EDGES)
def test_a_rule_holds_from_its_limit_on(tmp_path: Path, rule: str) -> None:
    gpus, below, there, otherwise = EDGES[rule]
    assert kind(tmp_path, gpus, below) == otherwise
    assert kind(tmp_path, gpus, there) == rule.partition(",")[0]


@pytest.mark.parametrize("rule", BUSY_EDGES)
def test_a_rule_holds_from_its_utilisation_on(tmp_path: Path, rule: str) -> None:
    below, there, more = BUSY_EDGES[rule]
    assert kind(tmp_path, below, more) is None
    assert kind(tmp_path, there, more) == rule.strip()


def test_pauses_count_from_their_limits_on(tmp_path: Path) -> None:
    for count, work, expected in ((4, 2, None), (5, 2, "input_bound"), (20, 6, None)):
        gpus = pauses(count, work)
        marks: Marks = (("train", 0.0, float(len(gpus["gpu0"])), {}),)
        assert kind(tmp_path, gpus, marks=marks) == expected, (count, work)


def test_clocks_count_from_their_limits_on(tmp_path: Path) -> None:
    marks: Marks = (("train", 0.0, 100.0, {}),)
    full: dict[str, Values] = {"gpu0": [99.0] * 100}
    for seconds, clock, expected in (
        (19, 1200.0, "ok"),
        (20, 1200.0, "throttled"),
        (20, 1900.0, "throttled"),
        (20, 1901.0, "ok"),
    ):
        assert kind(tmp_path, full, held(seconds, clock), marks) == expected, (seconds, clock)


def test_the_clock_of_an_idle_gpu_is_not_held_down(tmp_path: Path) -> None:
    """It is low by itself, whatever reason the driver gives beside."""
    marks: Marks = (("train", 0.0, 100.0, {}),)
    gpus: dict[str, Values] = {"gpu0": [*[2.0] * 40, *[99.0] * 60]}
    assert kind(tmp_path, gpus, held(40, 345.0), marks) is None
    gpus = {"gpu0": [*[2.0] * 20, *[99.0] * 80]}
    one = found(tmp_path, gpus, held(60, 1200.0), marks)
    assert one and one.kind == "throttled"
    assert "for 40 % of the time, to 1,200 instead of 2,000 MHz" in one.sentence
    mixed = held(60, 1200.0)
    mixed["gpu0/SM clock (MHz)"][:20] = [345.0] * 20
    assert found(tmp_path, gpus, mixed, marks) == one


def test_what_makes_figures_worthless_comes_first(tmp_path: Path) -> None:
    sawtooth: dict[str, Values] = {"gpu0": [80.0, 0.0] * 10}
    heat: dict[str, Values] = {"gpu0/throttle reasons (bits)": [64.0] * 20}
    assert kind(tmp_path, sawtooth, heat) == "input_bound"
    assert kind(tmp_path, sawtooth, {**heat, **memory(97, 500)}) == "swapping"
    assert kind(tmp_path, sawtooth, {**heat, **memory(97, 500), **others(9)}) == "shared"
