"""What held a program back, by its rules and at their limits; and no sentence where unsure."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import scenarios
from gpumon_tools import Spans, said_by, write

import gpumon
from gpumon import diagnosis
from gpumon.trace_notes import notes

STEP = 0.1
COUNT = 20
Values = list[float | None]
Series = dict[str, "float | Values"]


def replay(path: Path, name: str) -> gpumon.Trace:
    """One of the manual's scenarios as a trace, without the time that it takes to play."""
    shape, gpus, _ = scenarios.SCENARIOS[name]
    busy: dict[str, Values] = {}
    more: dict[str, Values] = {}
    spans: list[tuple[str, float, float, dict[str, Any]]] = []
    for gpu in range(gpus):
        rng, at = random.Random(gpu), 0.0
        values: Values = []
        activity: Values = []
        spans = []
        for phase, seconds in scenarios.PHASES:
            spans.append((phase, at, at + seconds, {}))
            for tick in range(round(seconds / STEP)):
                used, active, _ = shape(phase, tick * STEP, at, gpu, rng)
                values.append(min(100.0, used))
                activity.append(min(100.0, active))
                at += STEP
        busy[f"gpu{gpu}"] = values
        more[f"gpu{gpu}/SM activity (%)"] = activity
    return gpumon.read(write(path / name, busy, more=more, spans=tuple(spans), step=STEP))


def until(end: float) -> Spans:
    return (("train", 0.0, float(end), {}),)


def found(
    path: Path, gpus: Series, more: Series | None = None, spans: Spans | None = None, **others: Any
) -> diagnosis.Diagnosis | None:
    """What is said of a phase; a number stands for values that stay as they are."""
    lengths = [len(values) for values in gpus.values() if isinstance(values, list)]
    count = max(lengths, default=COUNT)
    spans = until(count * others.get("step", 1.0)) if spans is None else spans
    series = lasting(more or {}, count)
    trace = gpumon.read(write(path / "t", lasting(gpus, count), more=series, spans=spans, **others))
    said = trace.diagnosis()
    assert len(said) < 2
    return said[0] if said else None


def lasting(series: Series, count: int) -> dict[str, Values]:
    return {key: v if isinstance(v, list) else [v] * count for key, v in series.items()}


def kind(*arguments: Any, **named: Any) -> str | None:
    one = found(*arguments, **named)
    return one.kind if one else None


def busy(*shares: float | Values) -> Series:
    return {f"gpu{place}": share for place, share in enumerate(shares)}


def active(*shares: float | Values) -> Series:
    return {f"gpu{place}/SM activity (%)": share for place, share in enumerate(shares)}


def others(share: float | Values) -> Series:
    used: Series = {"gpu0/SM use others (%)": share, "gpu0/other processes (count)": 1.0}
    return active(80) | used


def cpu(share: float) -> Series:
    return {"process/CPU allowance used (%)": share, "process/CPU allowance (cores)": 2.0}


def held(seconds: int, clock: float, count: int = 100) -> Series:
    """A full GPU of whose 100 s heat took so many, down to a clock."""
    return {
        **active(80),
        "gpu0/throttle reasons (bits)": [*[64.0] * seconds, *[0.0] * (count - seconds)],
        "gpu0/SM clock (MHz)": [*[clock] * seconds, *[2000.0] * (count - seconds)],
    }


def pauses(count: int, work: int) -> Values:
    """Work for some seconds, then pause for one, repeatedly; work comes last."""
    return [*[*[80.0] * work, 0.0] * count, 80.0]


def first(value: float) -> Values:
    """Known for a tenth of the time."""
    return [value, value, *[None] * (COUNT - 2)]


FULL_FOR_LONG = busy([99.0] * 100)
SENTENCES: list[tuple[str, Series, Series, str]] = [
    ("shared", busy(99), others(42), "GPU 0 was shared: other programs took 42 % of its SMs' time"),
    ("input_bound", busy(35), cpu(97), "the CPU was 97 % busy and GPU 0 only 35 %: the CPU is the"),
    (
        "throttled",
        FULL_FOR_LONG,
        held(50, 1200.0),
        "GPU 0 ran with throttled clocks for 50 % of the time, to 1,200 instead of 2,000 MHz "
        "(thermal slowdown (hardware))",
    ),
    ("low_occupancy", busy(99, 0), active(20), "GPU 0 ran a kernel for 99 % of the time, but"),
    ("ok", busy(99), active(80), "GPU 0 had work for 99 % of the time, with 80 % SM activity"),
]


@pytest.mark.parametrize("name", ["ok", "input_bound", "imbalanced", "low_occupancy"])
def test_a_scenario_of_the_manual_gets_its_sentence(tmp_path: Path, name: str) -> None:
    said = {one.phase: one for one in replay(tmp_path, name).diagnosis()}
    assert said["train"].kind == name
    assert "load" not in said, "a phase without work for the GPU is not judged"
    assert "test" not in said and "validate" not in said, "too short"


@pytest.mark.parametrize(("rule", "gpus", "more", "begins"), SENTENCES)
def test_a_rule_says_what_it_found_with_its_metrics(
    tmp_path: Path, rule: str, gpus: Series, more: Series, begins: str
) -> None:
    one = found(tmp_path, gpus, more)
    assert one and one.kind == rule and one.sentence.startswith(begins)
    assert rule != "shared" or one.metrics == {"others' SM use mean (%)": 42.0}


BOTH_FILLED = active(80, 80)
KINDS: list[tuple[Series, Series, str | None]] = [
    # Each rule holds from its limits on.
    (busy(99), others(4.9), "ok"),
    (busy(99), others(5), "shared"),
    (busy(60), cpu(89.9), None),
    (busy(60), cpu(90), "input_bound"),
    (busy(60.1), cpu(90), None),
    (busy(35), {}, None),  # a small model may be no more
    (busy(pauses(4, 2)), {}, None),
    (busy(pauses(5, 2)), {}, "input_bound"),
    (FULL_FOR_LONG, held(19, 1200.0), "ok"),
    (FULL_FOR_LONG, held(20, 1200.0), "throttled"),
    (FULL_FOR_LONG, held(20, 1900.0), "throttled"),
    (FULL_FOR_LONG, held(20, 1901.0), "ok"),
    (busy(50, 37.6), {}, None),
    (busy(50, 37.5), {}, "imbalanced"),
    (busy(49.9, 30), {}, None),
    (busy(50, 30), {}, "imbalanced"),
    (busy(89.9), active(30), None),
    (busy(90), active(49.9), "low_occupancy"),
    (busy(90), active(50), "ok"),
    (busy(99, 89.9), BOTH_FILLED, None),
    (busy(99, 90), BOTH_FILLED, "ok"),
    (busy(99, 4.9), BOTH_FILLED, None),  # it takes no part, and nothing is ok then
    # What is known for a tenth of a phase bears no sentence.
    (busy(first(99)), active(80), None),
    (busy(99), others(first(50)), None),
    # What makes metrics worthless comes first.
    (busy([80.0, 0.0] * 10), others(9), "shared"),
]


@pytest.mark.parametrize(("gpus", "more", "expected"), KINDS)
def test_the_rule_of_a_phase(
    tmp_path: Path, gpus: Series, more: Series, expected: str | None
) -> None:
    assert kind(tmp_path, gpus, more) == expected


def test_power_tells_where_the_activity_is_not_known(tmp_path: Path) -> None:
    assert not found(tmp_path, busy(99)), (
        "100 W of 700 W at full utilisation: low occupancy, or a GPU that draws little"
    )
    one = found(tmp_path, busy(99), power=560.0)
    assert one and one.kind == "ok" and one.sentence.endswith("at 80 % of the power limit")
    assert not found(tmp_path, busy(70), active(80), power=560.0), "neither busy nor idle"


def test_what_the_waits_are_for(tmp_path: Path) -> None:
    """The sawtooth's host is at 50 %; beside a full CPU it is the CPU."""
    free = replay(tmp_path, "input_bound").diagnosis()[0]
    assert "while the CPU was 50 % busy: the wait is for something else" in free.sentence
    assert free.metrics["pauses (count)"] >= 14 and 40 < free.metrics["idle share (%)"] < 62
    full = found(tmp_path, busy([*[100.0] * 5, *[0.0] * 5] * 20), cpu(97), step=STEP)
    assert full
    assert "in 20 pauses, while the CPU was 97 % busy: the CPU is the limit" in full.sentence


def test_the_pause_at_the_beginning_of_each_repeat_is_not_starving(tmp_path: Path) -> None:
    spans: Spans = tuple(("validate", 10.0 * n, 10.0 * n + 10, {}) for n in range(8))
    values: Values = [0.0 if tick % 10 < 3 else 80.0 for tick in range(80)]
    assert not found(tmp_path, busy(values), spans=spans)
    assert kind(tmp_path, busy(values)) == "input_bound"


def test_the_clock_of_an_idle_gpu_is_not_held_down(tmp_path: Path) -> None:
    """It is low by itself, whatever reason the driver gives beside."""
    assert not found(tmp_path, busy([*[2.0] * 40, *[99.0] * 60]), held(40, 345.0))
    gpus = busy([*[2.0] * 20, *[99.0] * 80])
    one = found(tmp_path, gpus, held(60, 1200.0))
    assert one and one.kind == "throttled"
    assert "for 40 % of the time, to 1,200 instead of 2,000 MHz" in one.sentence
    clocks: Values = [*[345.0] * 20, *[1200.0] * 40, *[2000.0] * 40]
    assert found(tmp_path, gpus, held(60, 1200.0) | {"gpu0/SM clock (MHz)": clocks}) == one


@pytest.mark.parametrize(
    ("spans", "without"),
    [
        (until(4), ()),
        (tuple(("step", float(n), n + 0.9, {}) for n in range(20)), ()),
        (until(20), range(5, 12)),
    ],
    ids=["short", "short steps", "gap"],
)
def test_no_sentence_where_too_little_was_measured(
    tmp_path: Path, spans: Spans, without: Any
) -> None:
    assert found(tmp_path, busy(99), others(42)), "with enough of it there is one"
    assert not found(tmp_path, busy(99), others(42), spans, without=without)


def test_a_lost_gpu_leaves_nothing_sure(tmp_path: Path) -> None:
    gpus: dict[str, Values] = {"gpu0": [99.0] * 20, "gpu1": [99.0] * 10 + [None] * 10}
    more: dict[str, Values] = {f"gpu{n}/SM activity (%)": [80.0] * 20 for n in range(2)}
    trace = gpumon.read(write(tmp_path / "t", gpus, spans=until(20), more=more))
    frame = trace.recording.frame
    frame.loc[10:, [key for key in frame if key.startswith("gpu1/")]] = math.nan
    assert trace.summary().query("device == 'gpu1'")["measured (s)"].iloc[1] == 10
    assert trace.diagnosis() == []


def test_the_chart_and_the_page_say_it(tmp_path: Path) -> None:
    trace = replay(tmp_path, "low_occupancy")
    (told,) = diagnosis.sentences(trace.diagnosis())
    assert told.startswith("train: GPU 0 ran a kernel for ") and told in notes(trace.recording)
    assert told.replace("'", "&#x27;") in trace.html()
    drawn = said_by(trace.plot())
    assert told in drawn
