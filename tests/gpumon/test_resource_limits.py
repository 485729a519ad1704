"""What the program may use is the host's 100 %: affinity, real cgroups, and what charts say."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpumon_tools import data_of, python, write
from test_charts import in_the_page, in_the_picture

import gpumon
from gpumon import host

SPIN = "print(flush=True)\nwhile True: pass"


@pytest.fixture(name="busy")
def busy_fixture() -> Iterator[int]:
    """A process that computes without end on one CPU."""
    program = subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE)
    assert program.stdout is not None
    program.stdout.readline()
    os.sched_setaffinity(program.pid, [min(os.sched_getaffinity(0))])
    yield program.pid
    program.kill()
    program.communicate()


def used(process: int, seconds: float) -> list[float | None]:
    source = host.limit_source(process)
    source.read()
    time.sleep(seconds)
    return [value for value in source.read() if not isinstance(value, Exception)][:2]


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one CPU is all there is")
def test_a_program_on_one_full_cpu_uses_all_it_may(busy: int) -> None:
    share, cores = used(busy, 0.5)
    assert cores == 1.0 and share is not None and share > 90


def version_2(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A process in ``a/b`` of version 2, with limits on both levels."""
    inner = folder / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "cpu.max").write_text("max 100000\n")
    (inner / "memory.max").write_text("max\n")
    (inner.parent / "cpu.max").write_text("150000 100000\n")
    (inner.parent / "cpu.stat").write_text("usage_usec 0\nuser_usec 0\n")
    (inner.parent / "memory.max").write_text(f"{100 * 2**20}\n")
    (inner.parent / "memory.current").write_text(f"{80 * 2**20}\n")
    (inner.parent / "memory.stat").write_text(f"anon 1\ninactive_file {30 * 2**20}\n")
    proc = folder / "proc" / "5"
    proc.mkdir(parents=True)
    (proc / "cgroup").write_text("3:cpuset:/\n0::/a/b\n")
    monkeypatch.setattr(host, "PROC", folder / "proc")
    monkeypatch.setattr(host, "GROUPS", folder)
    monkeypatch.setattr(os, "sched_getaffinity", lambda root: {0, 1, 2, 3})
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    return inner.parent


def test_limits_of_version_2_hold_for_the_groups_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = version_2(tmp_path, monkeypatch)
    clock = [100.0]
    monkeypatch.setattr(host.time, "monotonic", lambda: clock[0])
    source = host.limit_source(5)
    assert source.read() == [None, 1.5, 50.0, 100.0]
    (group / "cpu.stat").write_text("usage_usec 1200000\nuser_usec 0\n")
    clock[0] += 1
    assert source.read()[:2] == [pytest.approx(80), 1.5]
    (group / "cpu.max").write_text("400000 100000")  # as many as there are: no limit
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
