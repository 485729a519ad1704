"""Long traces: past a number of values every second sample is dropped, and the interval doubles."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from gpumon_tools import write

import gpumon
from gpumon import trace_files, trace_notes
from gpumon.trace_files import new_file, samples_file

STEP = 0.5
VALUES = 5
"""How many series the trace of ``write`` has, with one GPU."""


class Recorded:
    """A sampler's writer on a clock of its own."""

    def __init__(self, prefix: Path) -> None:
        sound = samples_file(write(prefix.with_name("sound"), {"gpu0": [1.0]}, step=STEP))
        self.writer = trace_files.Writer(samples_file(prefix))
        self.writer.line(json.loads(sound.read_text().splitlines()[0]))
        self.now = 0.0

    def go(self, samples: int) -> None:
        for _ in range(samples):
            row: list[float | None] = [self.now % 100, 100.0 + self.now, 300.0, 20.0, 4000.0]
            self.writer.sample(self.now, row, range(VALUES))
            step = self.writer.interval  # as the sampler, which stays on the grid
            self.now = (self.now // step + 1) * step

    def end(self) -> None:
        self.writer.event(self.now, "end", why="closed")
        self.writer.close()


@pytest.fixture(name="small", autouse=True)
def small_fixture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_files, "MOST_VALUES", 40 * VALUES)
    monkeypatch.setattr(trace_files, "LINES", 7)


def test_a_long_trace_keeps_every_second_sample_and_says_so(tmp_path: Path) -> None:
    made = Recorded(tmp_path / "t")
    made.go(30)
    made.writer.event(made.now, "device lost", device="gpu0", reason="off the bus")
    made.go(200)
    made.end()
    trace = gpumon.read(tmp_path / "t")
    read = trace.recording
    thinned = read.header["thinned"]
    assert thinned >= 8 and read.step == STEP * thinned
    assert len(read.times) <= 50 and not read.gaps and not read.damaged
    assert list(read.times) == pytest.approx([n * read.step for n in range(len(read.times))])
    frame = trace.to_pandas()
    assert list(frame["gpu0/utilisation (%)"]) == pytest.approx([t % 100 for t in read.times])
    assert list(frame["gpu0/memory used (MiB)"]) == pytest.approx([100 + t for t in read.times])
    assert frame["host/cpu (%)"].eq(20).all(), "it never changed"
    assert [event["event"] for event in read.events] == ["device lost", "end"]
    cadence = trace.metadata()["cadence"]
    assert (cadence["asked (s)"], cadence["kept (s)"]) == (STEP, read.step)
    (note,) = (text for text in trace_notes.notes(read) if "is long" in text)
    assert f"one of {thinned} samples was kept" in note
    assert not new_file(samples_file(tmp_path / "t")).exists()


def test_no_sample_is_lost_where_there_is_no_room_to_thin_them_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    made = Recorded(tmp_path / "t")
    with monkeypatch.context() as disk:
        disk.setattr(Path, "replace", full)
        made.go(60)
    assert capfd.readouterr().out.count("warning: gpumon cannot write") == 1
    assert len(gpumon.read(tmp_path / "t").to_pandas()) == 60
    assert not new_file(samples_file(tmp_path / "t")).exists()
    made.go(60)
    made.end()
    assert gpumon.read(tmp_path / "t").recording.header["thinned"] >= 2


def test_the_sampler_thins_its_own_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = tmp_path / "sitecustomize.py"
    hook.write_text("import gpumon.trace_files as f\nf.MOST_VALUES = 800\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path) + os.pathsep + os.environ.get("PYTHONPATH", ""))
    with gpumon.Monitor(tmp_path / "t", interval=0.01) as monitor:
        deadline = time.monotonic() + 60
        while monitor.read().header.get("thinned", 1) < 4 and time.monotonic() < deadline:
            time.sleep(0.05)
    read = monitor.read()
    assert read.recording.step == 0.01 * read.header["thinned"] >= 0.04
    assert read.metadata()["ended"] == "closed"
