"""A sampler on each host: who has one, and how traces of machines with wrong clocks meet."""

from pathlib import Path
from typing import Any

import pytest
from gpumon_tools import Marks, write

import gpumon
from gpumon.drawing import device_lanes
from helpers.frameworks import rank_info
from helpers.frameworks.rank_info import Place
from helpers.launch import samplers
from helpers.launch.clocks import Bounds


def place_of(rank: int) -> Place:
    """One of two ranks on each of two hosts."""
    hosts, folder = ("n1", "n1", "n2", "n2"), Path("messages")
    addresses = tuple(f"10.0.0.{1 + number // 2}:{4000 + number}" for number in range(4))
    given: dict[str, Any] = {"virtual": False, "devices": 2, "kind": "cpu", "port": 1}
    return Place(
        rank, 4, 2, hosts=hosts, addresses=addresses, interfaces=("e",) * 4, folder=folder, **given
    )


def of_rank(folder: Path, rank: int, patch: pytest.MonkeyPatch) -> Any:
    patch.setattr(rank_info, "here", lambda: place_of(rank))
    return samplers.of_process(folder, live=False)


def test_the_first_rank_of_a_host_samples_and_all_mark_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    each = [of_rank(tmp_path, rank, monkeypatch) for rank in range(4)]
    assert [isinstance(marks, gpumon.Monitor) for marks in each] == [True, False, True, False]
    files = [
        marks.marker.path if isinstance(marks, gpumon.Monitor) else marks.path for marks in each
    ]
    names = [f"{name}.marks.jsonl" for name in ("trace", "trace", "trace-rank2", "trace-rank2")]
    assert [path.name for path in files] == names


def test_samplers_begin_and_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samplers.clear(tmp_path)
    (tmp_path / "trace-rank1.jsonl").write_text("of an earlier run")
    samplers.clear(tmp_path)
    marks = of_rank(tmp_path, 2, monkeypatch)
    assert isinstance(marks, gpumon.Monitor)
    for change, sampling in (
        (samplers.start, True),
        (samplers.stop, False),
        (samplers.stop, False),
    ):
        change(marks)
        assert marks.running == sampling
    for change in (samplers.start, samplers.stop):
        change(of_rank(tmp_path, 3, monkeypatch))  # which only marks
    assert samplers.prefixes(tmp_path) == {2: tmp_path / "trace-rank2"}


def test_traces_of_wrong_clocks_are_laid_on_one_axis(tmp_path: Path) -> None:
    """n2's wall clock is 100 s ahead; its monotonic one began 4000 s before n1's."""
    epoch: Marks = (("train", 2.0, 5.0, {}),)
    write(tmp_path / "trace", {"gpu0": [1, 2, 3, 4, 5, 6]}, marks=epoch, host="n1", boot="x")
    there: dict[str, Any] = {"start": 5001.0, "unix": 1.8e9 + 101, "host": "n2", "boot": "y"}
    later: Marks = (("train", 1.0, 4.0, {}),)
    write(tmp_path / "trace-rank2", {"gpu0": [7, 8, 9, 10, 11]}, rank=2, marks=later, **there)
    apart = Bounds(3999.998, 4000.002)
    found = samplers.align(tmp_path, {2: apart}, ["n1", "n1", "n2", "n2"])
    (clock,) = found
    assert clock == pytest.approx({"host": "n2", "ahead": 100.0, "within": 0.002}, abs=1e-6)
    trace = samplers.read(tmp_path)
    starts = trace.phases()["start (s)"]
    assert list(starts) == pytest.approx([2.0, 2.0], abs=1e-6), "both began to train together"
    stated = trace.metadata()["parts"][1]["clock"]
    assert "wall clock was +100.000000 s ahead, within 0.002000 s" in stated
    shown = device_lanes.lanes_of(trace.recording, (0, 6))
    assert [lane.name for lane in shown] == ["n1:gpu0", "n1:host", "n2:gpu0", "n2:host"]
