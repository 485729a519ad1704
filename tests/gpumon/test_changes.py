"""`gpumon compare a b`: what changed, phase by phase, and what cannot be told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from gpumon_tools import Marks, write

import gpumon
from gpumon.__main__ import main
from gpumon.changes import changes, describe

Values = list[float | None]


def run(path: Path, lengths: list[int], share: float, more: int = 0, **others: Any) -> gpumon.Trace:
    """Epochs of so many seconds at some utilisation, 100 images each; ``more``: of a test."""
    marks: list[tuple[str, float, float, dict[str, Any]]] = []
    at = 0.0
    for length in lengths:
        marks.append(("train", at, at + length, {"images": 100}))
        at += length
    if more:
        marks.append(("test", at, at + more, {}))
    values: Values = [share] * (int(at) + more)
    return gpumon.read(write(path, {"gpu0": values}, marks=tuple(marks), **others))


def test_a_change_is_what_is_beyond_the_range_of_the_repeats(tmp_path: Path) -> None:
    slow = run(tmp_path / "a", [20, 21, 22], 40.0)
    quick = run(tmp_path / "b", [10, 11, 12], 95.0)
    found = {change.figure: change for change in changes(slow, quick)["train"]}
    seconds = found["seconds"]
    assert seconds.is_sure and seconds.difference == pytest.approx(-100 * 10 / 21)
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
    assert not seconds.is_sure
    lines = describe(one, two, ("a", "b"))
    train = lines[lines.index("train (3 and 3 times; median, range)") + 1]
    assert train.startswith("  no change beyond the range of the repeats: seconds, ")


def test_one_repeat_tells_no_change_from_chance(tmp_path: Path) -> None:
    one, two = run(tmp_path / "a", [20], 40.0), run(tmp_path / "b", [10], 95.0, more=5)
    lines = describe(one, two, ("a", "b"))
    assert "train (once in each: no spread is known, so any difference may be chance)" in lines
    assert "  seconds 20 -> 10, 50 % less" in lines
    assert lines[-1] == "test: only in b, 5 s"


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
    marks: Marks = (("train", 0.0, 4.0, {"images": 8}),)
    one = gpumon.read(write(tmp_path / "a", {}, marks=marks))
    assert {c.figure for c in changes(one, one)["train"]} == {
        "seconds",
        "images/s",
        "CPU (%)",
        "memory",
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
                ("train", start + 0.1 * rank, start + 8 + 0.1 * rank, {"images": 100})
                for start in (0.0, 8.0)
            ),
        )
        for rank in range(4)
    ]
    (rate,) = (
        change
        for change in changes(gpumon.read(ranks), gpumon.read(ranks[0]))["train"]
        if change.figure == "images/s"
    )
    assert rate.before == pytest.approx([400 / 8.3] * 2) and rate.after == [12.5, 12.5]
