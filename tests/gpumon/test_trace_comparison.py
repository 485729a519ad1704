"""`gpumon compare a b`: what changed, phase by phase, and what cannot be told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from gpumon_tools import Marks, write

import gpumon
from gpumon.__main__ import main
from gpumon.trace_comparison import Change, changes, describe

Values = list[float | None]


def run(
    path: Path,
    lengths: list[int],
    share: float,
    more: int = 0,
    more_series: dict[str, Values] | None = None,
    **others: Any,
) -> gpumon.Trace:
    """Epochs of so many seconds at some utilisation, 100 items each; ``more``: of a test."""
    marks: list[tuple[str, float, float, dict[str, Any]]] = []
    at = 0.0
    for length in lengths:
        marks.append(("train", at, at + length, {"items": 100}))
        at += length
    if more:
        marks.append(("test", at, at + more, {}))
    values: Values = [share] * (int(at) + more)
    trace = write(path, {"gpu0": values}, marks=tuple(marks), more=more_series, **others)
    return gpumon.read(trace)


def test_from_nothing_is_no_number_of_times() -> None:
    assert Change("items/s", [0.0], [5.0]).text() == "items/s 0 -> 5, more"
    assert Change("items/s", [0.001], [5.0]).text().endswith(", many times more")


def test_a_change_is_what_is_beyond_the_range_of_the_repeats(tmp_path: Path) -> None:
    slow = run(tmp_path / "a", [20, 21, 22], 40.0)
    quick = run(tmp_path / "b", [10, 11, 12], 95.0)
    found = {change.figure: change for change in changes(slow, quick)["train"]}
    seconds = found["seconds"]
    assert seconds.is_significant and seconds.difference == pytest.approx(-100 * 10 / 21)
    assert seconds.text() == "seconds 21 (20 to 22) -> 11 (10 to 12), 48 % less"
    assert (
        found["GPU utilisation (%)"]
        .text()
        .endswith("40 (40 to 40) -> 95 (95 to 95), 55 points more")
    )
    lines = describe(slow, quick, ("a", "b"))
    assert "train (3 and 3 times; median, range)" in lines
    assert any(
        line.startswith("  no change beyond the range") and "power (W)" in line for line in lines
    )


def test_ranges_that_overlap_are_no_change(tmp_path: Path) -> None:
    one = run(tmp_path / "a", [20, 21, 30], 40.0)
    two = run(tmp_path / "b", [15, 16, 21], 40.0)
    (seconds,) = (c for c in changes(one, two)["train"] if c.figure == "seconds")
    assert not seconds.is_significant
    lines = describe(one, two, ("a", "b"))
    train = lines[lines.index("train (3 and 3 times; median, range)") + 1]
    least = "1 % or 1 point"
    assert train.startswith(f"  no change beyond the range of the repeats and {least}: seconds, ")


def test_one_repeat_tells_no_change_from_chance(tmp_path: Path) -> None:
    one, two = run(tmp_path / "a", [20], 40.0), run(tmp_path / "b", [10], 95.0, more=5)
    lines = describe(one, two, ("a", "b"))
    assert "train (once in each: no spread is known, so any difference may be chance)" in lines
    assert "  seconds 20 -> 10, 50 % less" in lines
    assert lines[-1] == "test: only in b, 5 s"
    ranks = [
        write(tmp_path / f"r{n}", {"gpu0": [9.0] * 9}, rank=n, process=n, marks=(("x", 0, 9, {}),))
        for n in range(4)
    ]
    assert describe(one, gpumon.read(ranks), ("a", "b"))[-1] == "x: only in b, 9 s"


def test_the_diagnosis_of_each_stands_with_the_phase(tmp_path: Path) -> None:
    full: Values = [97.0] * 20
    cpu: dict[str, Values] = {
        "process/CPU allowance used (%)": full,
        "process/CPU allowance (cores)": [2.0] * 20,
    }
    marks: Marks = (("train", 0.0, 20.0, {}),)
    one = gpumon.read(write(tmp_path / "a", {"gpu0": [35.0] * 20}, more=cpu, marks=marks))
    two = gpumon.read(write(tmp_path / "b", {"gpu0": [99.0] * 20}, power=600.0, marks=marks))
    told = describe(one, two, ("a", "b"))
    assert "  a: The CPU was 97 % busy and GPU 0 only 35 %: the CPU is the limit." in told
    assert any(line.startswith("  b: GPU 0 had work for 99 % of the time") for line in told)


def test_what_makes_traces_unlike_is_said(tmp_path: Path) -> None:
    one = run(tmp_path / "a", [20], 40.0)
    values: dict[str, Values] = {"gpu0": [40.0] * 40, "gpu1": [40.0] * 40}
    two = gpumon.read(write(tmp_path / "b", values, step=0.5))
    lines = describe(one, two, ("a", "b"))
    assert lines[1].startswith(
        "Different devices: a has 1 x NVIDIA H200, 1 x host of 4 cores, b 2 x NVIDIA H200, 1 x host"
    )
    assert lines[2].startswith("Different rates: a sample every 1 s in a, 0.5 s in b.")
    assert "train: only in a, 20 s" in lines
    assert not any("Different" in line for line in describe(one, one, ("a", "c")))


def test_traces_without_gpus_compare_their_hosts(tmp_path: Path) -> None:
    marks: Marks = (("train", 0.0, 4.0, {"items": 8}),)
    one = gpumon.read(write(tmp_path / "a", {}, marks=marks))
    assert {c.figure for c in changes(one, one)["train"]} == {
        "seconds",
        "items/s",
        "CPU (%)",
        "memory peak (MiB)",
    }


def test_the_command_says_it_and_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run(tmp_path / "a", [20], 40.0)
    run(tmp_path / "b", [10], 95.0)
    assert main(["compare", "a", "b"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("a -> b\n") and out.endswith("gpumon-compare.png\n")
    assert (tmp_path / "gpumon-compare.png").exists()


def test_bad_files_are_one_line_and_nothing_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run(tmp_path / "a", [20], 40.0)
    (tmp_path / "b.jsonl").write_text("no trace\n")
    for other in ("b", "none"):
        assert main(["compare", "a", other]) == 2
        told = capsys.readouterr()
        assert told.out == "" and re.fullmatch(r"gpumon: no trace at .+\n", told.err)
    assert not (tmp_path / "gpumon-compare.png").exists()


def test_what_ranks_mark_at_once_is_one_repeat(tmp_path: Path) -> None:
    """Four ranks that run two epochs, one a little later than the other, are no eight repeats."""
    ranks = [
        write(
            tmp_path / f"r{rank}",
            {"gpu0": [90.0] * 20},
            rank=rank,
            process=10 + rank,
            marks=tuple(
                ("train", start + 0.1 * rank, start + 8 + 0.1 * rank, {"items": 100})
                for start in (0.0, 8.0)
            ),
        )
        for rank in range(4)
    ]
    (rate,) = (
        change
        for change in changes(gpumon.read(ranks), gpumon.read(ranks[0]))["train"]
        if change.figure == "items/s"
    )
    assert rate.before == pytest.approx([400 / 8.3] * 2) and rate.after == [12.5, 12.5]


def test_less_than_a_percent_is_not_called_within_the_range(tmp_path: Path) -> None:
    one, two = run(tmp_path / "a", [20, 20], 90.0), run(tmp_path / "b", [20, 20], 91.2)
    assert not any("1 point: GPU" in line for line in describe(one, two, ("a", "b")))
    assert any(
        line.endswith("91.2 (91.2 to 91.2), 1 point more") for line in describe(one, two, ("", ""))
    )
    two = run(tmp_path / "b", [20, 20], 90.4)
    assert any(
        line.startswith("  no change beyond the range of the repeats and 1 % or 1 point: ")
        for line in describe(one, two, ("a", "b"))
    )


def cut(path: Path, *arguments: Any, **named: Any) -> gpumon.Trace:
    """A run whose last phase never ended."""
    run(path, *arguments, **named)
    marks = path.with_name(path.name + ".marks.jsonl")
    marks.write_text("".join(marks.read_text().splitlines(keepends=True)[:-1]))
    return gpumon.read(path)


def test_a_phase_that_never_ended_is_no_repeat(tmp_path: Path) -> None:
    """Its length is not known, nor how many of its items were done."""
    whole, torn = run(tmp_path / "a", [20, 20, 20], 40.0), cut(tmp_path / "b", [20, 20, 5], 40.0)
    found = {change.figure: change for change in changes(whole, torn)["train"]}
    assert found["seconds"].after == [20, 20] and found["items/s"].after == [5, 5]
    assert {c.figure for c in changes(whole, torn)["(all)"]} & {"items/s", "items/J"} == set()
    lines = describe(whole, torn, ("a", "b"))
    assert "train: a repeat that did not end in b is left out" in lines
    torn = cut(tmp_path / "b", [5], 40.0)
    lines = describe(whole, torn, ("a", "b"))
    assert "train" not in changes(whole, torn) and not any("only in" in line for line in lines)


def test_a_figure_of_a_part_of_a_repeat_is_none(tmp_path: Path) -> None:
    """The joules of a repeat half of which is a gap are not half the energy."""
    whole = run(tmp_path / "a", [20, 20], 40.0)
    torn = run(tmp_path / "b", [20, 20], 40.0, without=range(5, 15))
    for phase, before, after in (("(all)", [4000.0], []), ("train", [2000.0] * 2, [2000.0])):
        found = {change.figure: change for change in changes(whole, torn)[phase]}
        energy = found.get("energy (J)")
        assert (energy.after if energy else []) == after and (not energy or energy.before == before)
    lines = describe(whole, torn, ("a", "b"))
    assert "train (2 and 2 times; median, range)" in lines
    assert not any("energy" in line and "range of the repeats" in line for line in lines)
    torn = run(tmp_path / "b", [20, 20], 40.0, without=range(5, 15), power=300.0)
    told = "  energy (J) 2,000 (2,000 to 2,000) -> 6,000, 200 % more; known once, it may be chance"
    assert told in describe(whole, torn, ("a", "b"))


def test_other_parts_of_a_host_are_told(tmp_path: Path) -> None:
    more: dict[str, Values] = {
        "process/CPU allowance used (%)": [97.0] * 20,
        "process/CPU allowance (cores)": [2.0] * 20,
    }
    one = run(tmp_path / "a", [20], 40.0, more_series=more)
    two = run(tmp_path / "b", [20], 40.0)
    lines = describe(one, two, ("a", "b"))
    assert (
        "Different parts of the host: a might use 2 of 4 cores, b all. Figures of the host do "
        "not compare."
    ) in lines


def test_of_several_hosts_none_stands_for_all(tmp_path: Path) -> None:
    marks: Marks = (("train", 0.0, 4.0, {}),)
    hosts = [write(tmp_path / n, {}, host=n, boot=n, marks=marks) for n in ("a", "b")]
    both = gpumon.read(hosts)
    assert {change.figure for change in changes(both, both)["train"]} == {"seconds"}


def test_a_gpu_in_instances_is_not_counted_itself(tmp_path: Path) -> None:
    one, two = run(tmp_path / "a", [20], 40.0), run(tmp_path / "b", [20], 40.0)
    (gpu, host) = two.recording.header["devices"]
    whole = {**gpu, "name": "gpu1", "kind": "parent", "product": "NVIDIA H100"}
    two.recording.header["devices"] = [gpu, whole, host]
    assert not any("0 x" in line for line in describe(one, two, ("a", "b")))
