"""The host's series, nothing counted twice; what the program may use is the host's 100 %."""

from __future__ import annotations

import os
from collections import namedtuple
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil
import pytest
from gpumon_tools import data_of, python, write
from test_charts import in_the_page, in_the_picture

import gpumon
from gpumon import host
from gpumon.series import Source, Unavailable

Disk = namedtuple("Disk", "read_bytes write_bytes")
Card = namedtuple("Card", "bytes_recv bytes_sent")
MIB = 2**20


@pytest.fixture
def a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second passes from one reading to the next."""
    moments = iter(range(100))
    monkeypatch.setattr(host.time, "monotonic", lambda: float(next(moments)))


def answer(monkeypatch: pytest.MonkeyPatch, name: str, values: Iterable[Any]) -> None:
    """What psutil's function gives, call by call."""
    left = iter(values)
    monkeypatch.setattr(psutil, name, lambda **_: next(left))


def second(source: Source) -> tuple[Any, ...]:
    """What the second reading tells."""
    source.read()
    return tuple(source.read())


def test_a_disks_bytes_count_once(monkeypatch: pytest.MonkeyPatch, a_second: None) -> None:
    monkeypatch.setattr(host, "_physical", host._physical.__wrapped__)
    monkeypatch.setattr(Path, "exists", lambda path: path.name != "sda1")
    names = ("sda", "sda1", "nvme0n1", "dm-0", "md127", "loop3", "zram0")
    shown = [{name: Disk(n * MIB, 2 * n * MIB) for name in names} for n in (1, 4)]
    answer(monkeypatch, "disk_io_counters", shown)
    assert second(host._disk()) == (6.0, 12.0)


def test_the_loopback_is_no_network(monkeypatch: pytest.MonkeyPatch, a_second: None) -> None:
    shown = [{"lo": Card(0, 9**n), "eth0": Card(n * MIB, 0)} for n in (1, 3)]
    answer(monkeypatch, "net_io_counters", shown)
    assert second(host._network()) == (2.0, 0.0)


@pytest.mark.parametrize("shown", [None, FileNotFoundError])
def test_a_container_without_disks_says_so(monkeypatch: pytest.MonkeyPatch, shown: Any) -> None:
    def counters(**_: Any) -> None:
        if shown is not None:
            raise shown

    monkeypatch.setattr(psutil, "disk_io_counters", counters)
    with pytest.raises(Unavailable, match="no such device"):
        host._disk().read()


def test_limits_of_version_2_hold_for_the_groups_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process in ``a/b`` of version 2, with limits on both levels."""
    for name, text in {
        "a/b/cpu.max": "max 100000",
        "a/b/memory.max": "max",
        "a/cpu.max": "150000 100000",
        "a/cpu.stat": "usage_usec 0\nuser_usec 0",
        "a/memory.max": f"{100 * 2**20}",
        "a/memory.current": f"{80 * 2**20}",
        "a/memory.stat": f"anon 1\ninactive_file {30 * 2**20}",
        "proc/5/cgroup": "3:cpuset:/\n0::/a/b",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    monkeypatch.setattr(host, "PROC", tmp_path / "proc")
    monkeypatch.setattr(host, "GROUPS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda root: {0, 1, 2, 3})
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    clock = [100.0]
    monkeypatch.setattr(host.time, "monotonic", lambda: clock[0])
    source = host.limit_source(5)
    assert source.read() == [None, 1.5, 50.0, 100.0]
    (tmp_path / "a/cpu.stat").write_text("usage_usec 1200000\nuser_usec 0\n")
    clock[0] += 1
    assert source.read()[:2] == [pytest.approx(80), 1.5]
    (tmp_path / "a/cpu.max").write_text("400000 100000")  # as many as there are: no limit
    clock[0] += 60
    assert source.read()[:2] == [None, 4.0]


def pinned(folder: Path) -> gpumon.Trace:
    """A program that filled the one core of four that it might use, and half of its memory."""
    more: dict[str, list[float | None]] = {
        "process/CPU allowance used (%)": [None, *[100.0] * 11],
        "process/CPU allowance (cores)": [4.0, *[1.0] * 11],
        "process/memory allowance used (MiB)": [500.0] * 12,
        "process/memory allowance (MiB)": [1000.0] * 12,
    }
    return gpumon.read(write(folder / "t", {"gpu0": [50.0] * 12}, more=more))


def test_both_are_drawn_and_told_where_they_differ(tmp_path: Path) -> None:
    trace = pinned(tmp_path)
    row = trace.summary().set_index(["phase", "device"]).loc[("(all)", "host")]
    assert row["utilisation mean (%)"] == pytest.approx(100 - 50 / 12)
    assert (row["allowed cores"], row["machine CPU mean (%)"]) == (1, 50)
    assert (row["memory peak (MiB)"], row["machine memory peak (MiB)"]) == (500, 4000)
    picture, page = in_the_picture(trace), in_the_page(trace)
    assert picture["lanes"] == page["lanes"] and picture["legend"] == page["legend"]
    assert {"96 % of its CPU", "50 % of all", "500 MiB peak", "1 of 4 cores"} <= picture["lanes"]
    assert {"CPU, allowed cores", "CPU, all cores"} <= picture["legend"]
    lines = data_of(trace.html())["lanes"][1]["lines"]
    assert lines[0]["v"][-1] == 100 and lines[2]["v"][-1] == 50


def test_ranks_with_parts_of_their_own_leave_the_host_whole(tmp_path: Path) -> None:
    pinned(tmp_path / "0")
    pinned(tmp_path / "1")
    both = gpumon.read([tmp_path / "0" / "t", tmp_path / "1" / "t"])
    row = both.summary().set_index(["phase", "device"]).loc[("(all)", "host")]
    assert row["utilisation mean (%)"] == pytest.approx(50) and "allowed cores" not in row


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one CPU is all there is")
def test_a_pinned_program_under_the_monitor(tmp_path: Path) -> None:
    code = f"""
import os, time, gpumon
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
with gpumon.Monitor({str(tmp_path / "t")!r}, interval=0.1):
    end = time.monotonic() + 1.2
    while time.monotonic() < end: pass
"""
    assert python("-c", code, CUDA_VISIBLE_DEVICES="").returncode == 0
    row = gpumon.read(tmp_path / "t").summary().set_index("device").loc["host"]
    assert row["allowed cores"] == 1 and row["utilisation mean (%)"] > 75
