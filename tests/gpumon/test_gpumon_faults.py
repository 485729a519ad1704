"""The disk is full for a while, signals come twice: nothing is lost but what must be."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpumon_tools import ROOT, said_by, write
from processes import ended

import gpumon
from gpumon import trace_files
from gpumon.series import Scheduler, Series, Source
from gpumon.trace_files import Writer, phases_file, samples_file

TORN = 0
"""Instead of an error: the disk takes half of the line."""
SAMPLES = 8


class Disk:
    """``os.write`` that fails at one call, or at several in a row, and goes on afterwards."""

    def __init__(self, first: int, fault: int, calls: int = 1) -> None:
        self.failing = range(first, first + calls)
        self.fault = fault
        self.count = itertools.count()
        self.failed = 0
        self._write: Callable[[int, bytes], int] = os.write

    def __call__(self, file: int, data: bytes) -> int:
        if file < 3 or next(self.count) not in self.failing:
            return self._write(file, data)
        self.failed += 1
        if self.fault == TORN:
            return self._write(file, data[: len(data) // 2])
        raise OSError(self.fault, os.strerror(self.fault))


def record(prefix: Path) -> None:
    """What the sampler does in eight seconds, on a clock of its own: header, samples, events."""
    sound = samples_file(write(prefix.with_name("sound"), {}))
    header = json.loads(sound.read_text().splitlines()[0])
    out = Writer(samples_file(prefix))
    out.line(header)
    values = iter(range(100))
    series = [Series(entry["key"], "none") for entry in header["series"]]
    sampler = Scheduler([Source("host", series, lambda: [next(values), 7.0])], 1.0, out)
    for second in range(SAMPLES):
        if second == 5:
            out.event(second, "back", series=[0])
        sampler.tick(second, float(second))
    out.event(SAMPLES, "end", why="closed")
    out.close()


def readings(trace: gpumon.Trace) -> dict[float, float]:
    known = trace.to_pandas()["host/cpu (%)"].dropna()
    return {float(moment): float(value) for moment, value in known.items()}  # type: ignore[arg-type]


@pytest.mark.parametrize("fault", [errno.ENOSPC, TORN])
def test_a_full_disk_costs_the_samples_of_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: int
) -> None:
    disk = Disk(4, fault, 3)
    monkeypatch.setattr(os, "write", disk)
    monkeypatch.setattr(trace_files, "MOST_OWED", 0)
    record(tmp_path / "t")
    monkeypatch.undo()
    assert disk.failed
    trace = gpumon.read(tmp_path / "t")
    found = readings(trace)
    assert set(found.items()) <= {(float(n), float(n)) for n in range(SAMPLES)}
    lost = SAMPLES - len(found)
    assert 0 < lost <= 3
    (gap,) = trace.recording.gaps
    why = os.strerror(fault) if fault else "only part of a line"
    assert why in gap["reason"]
    assert np.isnan(trace.to_pandas()["host/memory used (MiB)"].loc[gap["t"]])
    assert trace.summary().iloc[0]["measured (s)"] == pytest.approx(SAMPLES - lost)
    assert why in said_by(trace.plot())
    # What is no sample is late, and not lost.
    assert trace.metadata()["ended"] == "closed"
    assert [e["t"] for e in trace.recording.events if e["event"] == "back"] == [5]


@pytest.mark.parametrize("fault", [errno.ENOSPC, TORN])
def test_a_full_disk_costs_no_phase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: int
) -> None:
    path = write(tmp_path / "t", {"gpu0": [50.0] * 8})
    marker = gpumon.Marker(phases_file(path))
    disk = Disk(2, fault, 3)
    monkeypatch.setattr(os, "write", disk)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with marker.phase("train", items=5):
            with marker.phase("step"):
                pass
            with marker.phase("step"):
                pass
        with marker.phase("test"):
            pass
        while marker._owed:
            marker.close()
    monkeypatch.undo()
    assert disk.failed and len(told) == 1
    why = os.strerror(fault) if fault else "only part of a line"
    assert why in str(told[0].message)
    phases = gpumon.read(path).phases()
    assert sorted(phases["phase"]) == ["test", "train", "train/step", "train/step"]
    assert not phases["open"].any()


PROGRAM = """
import os, signal, sys, time
import gpumon
with gpumon.phase("train"):
    print("up", os.getpid(), flush=True)
    time.sleep(600)
"""
ENDING = ("SIGINT", "SIGTERM", "SIGHUP")


def start(folder: Path, program: str = PROGRAM, *before: str) -> subprocess.Popen[str]:
    words = ["-m", "gpumon", "record", "--interval", "0.05", "--out", str(folder / "t"), "--"]
    return subprocess.Popen(
        [*before, sys.executable, *words, sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def program_of(recorder: subprocess.Popen[str]) -> int:
    assert recorder.stdout is not None
    word, number = recorder.stdout.readline().split()
    assert word == "up"
    return int(number)


@pytest.fixture(name="recorders")
def recorders_fixture(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts recorders; whatever is left of them at the end is ended."""
    started: list[subprocess.Popen[str]] = []

    def begin(name: str, *more: Any) -> subprocess.Popen[str]:
        (tmp_path / name).mkdir()
        started.append(start(tmp_path / name, *more))
        return started[-1]

    yield begin
    for recorder in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(recorder.pid, signal.SIGKILL)
        recorder.communicate()


def test_a_signal_twice_leaves_no_orphan(
    tmp_path: Path, recorders: Callable[..., subprocess.Popen[str]]
) -> None:
    running = {name: recorders(name) for name in ENDING}
    programs = {name: program_of(recorder) for name, recorder in running.items()}
    for name, recorder in running.items():
        recorder.send_signal(getattr(signal, name))
        recorder.send_signal(getattr(signal, name))
    for name, recorder in running.items():
        _, said = recorder.communicate(timeout=300)
        assert recorder.returncode == 128 + getattr(signal, name), said
        assert "gpumon" not in said.replace("gpumon: trace in", "").replace("gpumon plot", "")
        trace = gpumon.read(tmp_path / name / "t")
        assert ended(programs[name]) and ended(trace.header["sampler"])
        assert trace.metadata()["ended"] == "closed"
        assert list(trace.phases()["phase"]) == ["command", "train"]


def test_a_signal_reaches_the_program_whose_exit_code_is_passed_on(
    recorders: Callable[..., subprocess.Popen[str]],
) -> None:
    handler = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\nwith gpumon.phase"
    recorder = recorders("handles", PROGRAM.replace("with gpumon.phase", handler))
    program_of(recorder)
    recorder.send_signal(signal.SIGTERM)
    recorder.communicate(timeout=300)
    assert recorder.returncode == 3


def test_a_killed_recorder_leaves_no_orphan(
    tmp_path: Path, recorders: Callable[..., subprocess.Popen[str]]
) -> None:
    recorder = recorders("killed")
    program = program_of(recorder)
    recorder.kill()
    assert ended(program)
    trace = gpumon.read(tmp_path / "killed" / "t")
    assert ended(trace.header["sampler"])
    assert "train" in set(gpumon.read(tmp_path / "killed" / "t").phases()["phase"])


def test_ignored_signals_stay_ignored(recorders: Callable[..., subprocess.Popen[str]]) -> None:
    program = PROGRAM.replace("time.sleep(600)", "sys.stdin.read()\n    time.sleep(0.2)")
    recorder = recorders("nohup", program, "nohup")
    number = program_of(recorder)
    recorder.send_signal(signal.SIGHUP)
    recorder.send_signal(signal.SIGHUP)
    recorder.communicate(timeout=300)
    assert recorder.returncode == 0 and ended(number)


def test_what_changed_while_the_disk_was_full_is_known_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory changes once, in the sample that is lost."""
    header = json.loads(samples_file(write(tmp_path / "sound", {})).read_text().splitlines()[0])
    monkeypatch.setattr(os, "write", Disk(4, errno.ENOSPC, 3))
    monkeypatch.setattr(trace_files, "MOST_OWED", 0)
    out = Writer(samples_file(tmp_path / "t"))
    out.line(header)
    for second in range(SAMPLES):
        changed = {0, 1} if second == 4 else {0}
        out.sample(float(second), [float(second), 7.0 if second < 4 else 9.0], changed)
    out.event(SAMPLES, "end", why="closed")
    out.close()
    monkeypatch.undo()
    trace = gpumon.read(tmp_path / "t")
    memory = trace.to_pandas()["host/memory used (MiB)"].dropna()
    assert trace.recording.gaps and 4.0 not in memory.index
    assert set(memory.loc[5.0:]) == {9.0}
