"""What held a program back, by its rules, on replayed traces; and no sentence where unsure."""

from __future__ import annotations

import math
import random
import re
from array import array
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import scenarios
from gpumon_tools import Marks, write

import gpumon
from gpumon import diagnosis, phase_metrics
from gpumon.phase_metrics import MEASURED, USED
from gpumon.trace_notes import notes

STEP = 0.1
Values = list[float | None]
Series = dict[str, "float | Values"]


def replay(path: Path, name: str, **more: Any) -> gpumon.Trace:
    """One of the manual's scenarios as a trace, without the time that it takes to play."""
    shape, gpus, _ = scenarios.SCENARIOS[name]
    busy: dict[str, Values] = {}
    series: dict[str, Values] = {}
    marks: list[tuple[str, float, float, dict[str, Any]]] = []
    for gpu in range(gpus):
        rng, at = random.Random(gpu), 0.0
        values: Values = []
        activity: Values = []
        marks = []
        for phase, seconds in scenarios.PHASES:
            marks.append((phase, at, at + seconds, {}))
            for tick in range(round(seconds / STEP)):
                used, active, _ = shape(phase, tick * STEP, at, gpu, rng)
                values.append(min(100.0, used))
                activity.append(min(100.0, active))
                at += STEP
        busy[f"gpu{gpu}"] = values
        series[f"gpu{gpu}/SM activity (%)"] = activity
    given: dict[str, Any] = {"more": series, "marks": tuple(marks), "step": STEP, **more}
    return gpumon.read(write(path / name, busy, **given))


@pytest.mark.parametrize("kind", ["ok", "input_bound", "imbalanced", "low_occupancy"])
def test_a_scenario_of_the_manual_gets_its_sentence(tmp_path: Path, kind: str) -> None:
    found = {one.phase: one for one in replay(tmp_path, kind).diagnosis()}
    assert found["train"].kind == kind
    assert "load" not in found, "a phase without work for the GPU is not judged"
    assert "test" not in found and "validate" not in found, "too short"


def flat(
    path: Path,
    gpus: dict[str, float] | None = None,
    more: Series | None = None,
    marks: Marks = (("train", 0.0, 20.0, {}),),
    count: int = 20,
    **others: Any,
) -> list[diagnosis.Diagnosis]:
    """The diagnosis of a trace in which everything stays as it is; one GPU, full, by default."""
    busy: dict[str, Values] = {
        name: [share] * count for name, share in (gpus or {"gpu0": 99.0}).items()
    }
    series: dict[str, Values] = {
        key: value if isinstance(value, list) else [value] * count
        for key, value in (more or {}).items()
    }
    trace = gpumon.read(write(path / "t", busy, more=series, marks=marks, **others))
    return trace.diagnosis()


def half(first: float, then: float) -> Values:
    return [*[first] * 10, *[then] * 10]


FILLED: Series = {"gpu0/SM activity (%)": 80.0}
FULL_CPU: Series = {
    "process/CPU allowance used (%)": 97.0,
    "process/CPU allowance (cores)": 2.0,
}
FULL_MEMORY: Series = {
    "process/memory allowance used (MiB)": 1940.0,
    "process/memory allowance (MiB)": 2000.0,
    "process/major page faults (1/s)": 850.0,
}
HELD: Series = {
    "gpu0/throttle reasons (bits)": half(0.0, 64.0),
    "gpu0/SM clock (MHz)": half(1980.0, 1200.0),
}


def only(found: list[diagnosis.Diagnosis]) -> diagnosis.Diagnosis:
    (one,) = found
    return one


def test_a_gpu_that_others_use(tmp_path: Path) -> None:
    found = only(flat(tmp_path, more={**FILLED, "gpu0/SM use others (%)": 42.0, **shared()}))
    assert found.kind == "shared" and found.figures == {"others' SM use mean (%)": 42.0}
    assert found.sentence.startswith("GPU 0 was shared: other programs took 42 % of its SMs' time")
    quiet = only(flat(tmp_path, more={**FILLED, "gpu0/SM use others (%)": 4.0, **shared()}))
    assert quiet.kind == "ok", "who only holds memory takes no time"


def shared() -> Series:
    return {"gpu0/other processes (count)": 1.0}


def test_memory_that_is_full(tmp_path: Path) -> None:
    found = only(flat(tmp_path, {"gpu0": 30.0}, FULL_MEMORY))
    assert found.kind == "swapping"
    assert found.figures == {"memory mean (%)": 97.0, "major page faults (1/s)": 850.0}
    assert found.sentence.startswith("97 % of the memory that the program may use was taken, and")
    assert "850 pages a second" in found.sentence
    reading: Series = {**FULL_MEMORY, "process/memory allowance used (MiB)": 900.0}
    assert not flat(tmp_path, {"gpu0": 30.0}, reading), "files are read with room to spare"
    assert not flat(
        tmp_path, {"gpu0": 30.0}, {**FULL_MEMORY, "process/major page faults (1/s)": 20.0}
    )


def test_a_cpu_that_is_full_beside_gpus_that_are_not(tmp_path: Path) -> None:
    found = only(flat(tmp_path, {"gpu0": 35.0}, FULL_CPU))
    assert found.kind == "input_bound"
    assert found.sentence == "the CPU was 97 % busy and GPU 0 only 35 %: the CPU is the limit"
    two = only(flat(tmp_path, {"gpu0": 30.0, "gpu1": 40.0}, FULL_CPU))
    assert "busy and the 2 GPUs only 35 %: the CPU is the limit" in two.sentence
    assert not flat(tmp_path, {"gpu0": 35.0}), "a small model may be no more"
    assert not flat(tmp_path, {"gpu0": 75.0}, FULL_CPU)


def test_what_the_waits_are_for(tmp_path: Path) -> None:
    """The sawtooth's host is at 50 %; beside a full CPU it is the CPU."""
    free = replay(tmp_path, "input_bound").diagnosis()[0]
    assert "while the CPU was 50 % busy: the wait is for something else" in free.sentence
    length = sum(round(seconds / STEP) for _, seconds in scenarios.PHASES)
    assert free.figures["pauses (count)"] >= 14 and 40 < free.figures["idle share (%)"] < 62
    busy: Values = [100.0 if tick % 10 < 5 else 0.0 for tick in range(length)]
    more: dict[str, Values] = {
        "process/CPU allowance used (%)": [97.0] * length,
        "process/CPU allowance (cores)": [2.0] * length,
    }
    marks: Marks = (("train", 0.0, 20.0, {}),)
    trace = gpumon.read(write(tmp_path / "c", {"gpu0": busy}, more=more, marks=marks, step=STEP))
    full = only(trace.diagnosis())
    assert "in 20 pauses, while the CPU was 97 % busy: the CPU is the limit" in full.sentence


def on_hosts(path: Path, busy: Values, cpus: list[float | None]) -> list[diagnosis.Diagnosis]:
    """The diagnosis of one GPU a host, merged; of each host the CPU, unknown where that is None."""
    marks: Marks = (("train", 0.0, 20.0, {}),)
    names = "abcdefgh"[: len(cpus)]
    trace = gpumon.read(
        [write(path / name, {"gpu0": busy}, host=name, boot=name, marks=marks) for name in names]
    )
    for name, cpu in zip(names, cpus, strict=True):
        place = trace.recording.keys.index(f"{name}:host/cpu (%)")
        held = array("d", [math.nan if cpu is None else cpu] * len(trace.recording.times))
        trace.recording.columns[place] = held
    return trace.diagnosis()


@pytest.mark.parametrize("known", [0, 1])
def test_a_cpu_that_is_not_known_is_neither_blamed_nor_cleared(tmp_path: Path, known: int) -> None:
    for share in (97.0, 30.0):
        cpus: list[float | None] = [None, None]
        cpus[known] = share
        assert not on_hosts(tmp_path, [35.0] * 20, cpus)
        found = only(on_hosts(tmp_path, [80.0, 0.0] * 10, cpus))
        assert found.sentence.endswith(" pauses") and "CPU mean (%)" not in found.figures
    found = only(on_hosts(tmp_path, [35.0] * 20, [96.0, 98.0]))
    assert found.sentence.startswith("the CPU was 97 % busy")


def test_the_pause_at_the_beginning_of_each_repeat_is_not_starving(tmp_path: Path) -> None:
    marks: Marks = tuple(("validate", 10.0 * n, 10.0 * n + 10, {}) for n in range(8))
    busy: Values = [0.0 if tick % 10 < 3 else 80.0 for tick in range(80)]
    trace = gpumon.read(write(tmp_path / "t", {"gpu0": busy}, marks=marks))
    assert trace.summary().to_pandas().query("phase == 'validate'")["idle share (%)"].iloc[0] == 30
    assert trace.diagnosis() == []


def test_a_hole_in_a_pause_makes_no_second_one(tmp_path: Path) -> None:
    marks: Marks = (("train", 0.0, 60.0, {}),)
    values: Values = [80.0, 80.0, 80.0, 80.0, 0.0, None, 0.0, 80.0, 80.0, 80.0, 80.0, 80.0] * 5
    trace = gpumon.read(write(tmp_path / "t", {"gpu0": values}, marks=marks))
    phase = phase_metrics.phase_of(trace.recording, [(0.0, 60.0)], [0.0], [], 60.0)
    assert phase_metrics.idle_pauses(phase, "gpu0") == (pytest.approx(100 * 10 / 55), 5)


def test_clocks_that_heat_holds_down(tmp_path: Path) -> None:
    found = only(flat(tmp_path, more={**FILLED, **HELD}))
    assert found.kind == "throttled"
    assert found.sentence == (
        "GPU 0 ran with throttled clocks for 50 % of the time, to 1,200 instead of "
        "1,980 MHz (thermal slowdown (hardware))"
    )
    hardly: Series = {**HELD, "gpu0/SM clock (MHz)": half(1980.0, 1950.0)}
    assert only(flat(tmp_path, more={**FILLED, **hardly})).kind == "ok"
    seldom: Series = {**HELD, "gpu0/throttle reasons (bits)": [*half(0.0, 0.0)[:18], 64.0, 64.0]}
    assert only(flat(tmp_path, more={**FILLED, **seldom})).kind == "ok"


def test_power_tells_where_the_activity_is_not_known(tmp_path: Path) -> None:
    assert not flat(tmp_path), (
        "100 W of 700 W at full utilisation: low occupancy, or a GPU that draws little"
    )
    found = only(flat(tmp_path, power=560.0))
    assert found.kind == "ok" and found.sentence.endswith("at 80 % of the power limit")
    assert not flat(tmp_path, {"gpu0": 70.0}, FILLED, power=560.0), "neither busy nor idle"
    assert (
        only(flat(tmp_path, more={"gpu0/SM activity (%)": 30.0}, power=560.0)).kind
        == "low_occupancy"
    )


def test_a_gpu_that_takes_no_part_is_not_judged_and_nothing_is_ok_then(tmp_path: Path) -> None:
    more: Series = {"gpu1/SM activity (%)": 80.0, **FILLED}
    assert only(flat(tmp_path, {"gpu0": 99.0, "gpu1": 98.0}, more)).kind == "ok"
    assert not flat(tmp_path, {"gpu0": 99.0, "gpu1": 0.0}, more)
    low_occupancy: Series = {"gpu0/SM activity (%)": 20.0}
    found = only(flat(tmp_path, {"gpu0": 99.0, "gpu1": 0.0}, low_occupancy))
    assert found.kind == "low_occupancy" and found.sentence.startswith(
        "GPU 0 ran a kernel for 99 % of the time, but"
    )


@pytest.mark.parametrize(
    ("marks", "without", "step"),
    [
        ((("train", 0.0, 4.0, {}),), (), 1.0),
        (tuple(("step", float(n), n + 0.9, {}) for n in range(20)), (), 1.0),
        ((("train", 0.0, 20.0, {}),), range(5, 12), 1.0),
    ],
    ids=["short", "short steps", "gap"],
)
def test_no_sentence_where_too_little_was_measured(
    tmp_path: Path, marks: Marks, without: Any, step: float
) -> None:
    more: Series = {**FILLED, "gpu0/SM use others (%)": 42.0, **shared()}
    assert flat(tmp_path, more=more), "with enough of it there is one"
    assert not flat(tmp_path, more=more, marks=marks, without=without, step=step)


def test_a_lost_gpu_leaves_nothing_sure(tmp_path: Path) -> None:
    busy: dict[str, Values] = {"gpu0": [99.0] * 20, "gpu1": [99.0] * 10 + [None] * 10}
    more: dict[str, Values] = {f"gpu{n}/SM activity (%)": [80.0] * 20 for n in range(2)}
    marks: Marks = (("train", 0.0, 20.0, {}),)
    trace = gpumon.read(write(tmp_path / "t", busy, marks=marks, more=more))
    recording = trace.recording
    for key, column in zip(recording.keys, recording.columns, strict=True):
        if key.startswith("gpu1/"):
            column[10:] = array("d", [math.nan] * (len(column) - 10))
    assert trace.summary().to_pandas().query("device == 'gpu1'")["measured (s)"].iloc[1] == 10
    assert trace.diagnosis() == []


def test_without_a_phase_the_whole_run_is_one(tmp_path: Path) -> None:
    (found,) = flat(tmp_path, more=FILLED, marks=())
    assert found.phase == "(all)"
    assert diagnosis.sentences([found]) == [
        "GPU 0 had work for 99 % of the time, with 80 % SM activity."
    ]


def test_the_chart_and_the_page_say_it(tmp_path: Path) -> None:
    trace = replay(tmp_path, "low_occupancy")
    (told,) = diagnosis.sentences(trace.diagnosis())
    assert told.startswith("train: GPU 0 ran a kernel for ") and told in notes(trace.recording)
    assert told.replace("'", "&#x27;") in trace.html()
    drawn = " ".join(text.get_text() for text in reversed(trace.plot().texts))
    assert told in drawn


def test_every_rule_is_in_the_manual_with_its_limits() -> None:
    manual = (Path(__file__).resolve().parents[2] / "docs" / "gpumon.md").read_text()
    table = manual[manual.index("## The diagnosis") :].partition("\n## ")[0]
    of = diagnosis
    limits = {
        "shared": [of.OTHERS],
        "swapping": [of.FULL_MEMORY, of.FAULTS],
        "input_bound": [of.IDLE_SHARE, of.PAUSES, of.FULL_CPU, of.FLAT, of.FREE_CPU],
        "throttled": [of.THROTTLED_SHARE, 100 - 100 * of.LOWER_CLOCK],
        "imbalanced": [of.IMBALANCE, of.HIGHEST],
        "low_occupancy": [of.BUSY, of.FILLED],
        "ok": [of.BUSY, of.FILLED, of.FILLED_POWER],
    }
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    assert [row.split("|")[1].strip() for row in rows[1:]] == list(diagnosis.RULES)
    for row in rows[1:]:
        for limit in limits[row.split("|")[1].strip()]:
            assert re.search(rf"\b{limit:.0f}\b", row), (row, limit)
    for limit in (of.LEAST_SECONDS, of.LEAST_STRETCH, of.FEW, 100 * MEASURED, USED):
        assert re.search(rf"\b{limit:.0f}\b", table.partition("| ")[0]), limit
