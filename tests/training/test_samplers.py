"""A sampler on each host: who has one, and how traces of machines with wrong clocks meet."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import gpumon
from gpumon import launch
from gpumon.trace_files import phases_file
from helpers.frameworks import rank_info
from helpers.frameworks.rank_info import Place
from helpers.training import samplers


def place_of(rank: int) -> Place:
    """One of two ranks on each of two hosts."""
    hosts = ("n1", "n1", "n2", "n2")
    addresses = tuple(f"10.0.0.{1 + number // 2}:{4000 + number}" for number in range(4))
    given: dict[str, Any] = {"virtual": False, "devices": 2, "kind": "cpu", "port": 1}
    return Place(rank, 4, 2, hosts=hosts, addresses=addresses, interfaces=("e",) * 4, **given)


def of_rank(folder: Path, rank: int, patch: pytest.MonkeyPatch) -> Any:
    patch.setattr(rank_info, "here", lambda: place_of(rank))
    return samplers.of_process(folder, live=False)


def test_the_first_rank_of_a_host_samples_and_all_mark_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    each = [of_rank(tmp_path, rank, monkeypatch) for rank in range(4)]
    assert [isinstance(marks, gpumon.Monitor) for marks in each] == [True, False, True, False]
    names = [getattr(marks, "marker", marks).path.name for marks in each]
    assert names == [*["trace.phases.jsonl"] * 2, *["trace-rank2.phases.jsonl"] * 2]


def test_samplers_begin_and_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samplers.clear(tmp_path)
    (tmp_path / "trace-rank1.jsonl").write_text("of an earlier run")
    samplers.clear(tmp_path)
    marks = of_rank(tmp_path, 2, monkeypatch)
    assert isinstance(marks, gpumon.Monitor)
    for change in (samplers.start, samplers.stop, samplers.stop):
        change(marks)
        assert marks.running == (change is samplers.start)
    for change in (samplers.start, samplers.stop):
        change(of_rank(tmp_path, 3, monkeypatch))  # which only marks
    assert (tmp_path / "trace-rank2.jsonl").exists()
    assert not (tmp_path / "trace-rank1.jsonl").exists()


def test_the_clocks_of_several_hosts_are_compared_while_they_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "boot_id", lambda: f"boot of {threading.current_thread().name}")
    first = of_rank(tmp_path, 0, monkeypatch)
    samplers.start(first)
    other = of_rank(tmp_path, 2, monkeypatch)
    samplers.start(other)
    path, until = phases_file(tmp_path / "trace-rank2"), time.monotonic() + 60
    while '"ahead (s)"' not in path.read_text(encoding="utf-8") and time.monotonic() < until:
        time.sleep(0.05)
    samplers.stop(other)
    samplers.stop(first)
    assert '"ahead (s)"' in path.read_text(encoding="utf-8")
