"""The monitor around a program: life and death of the sampler, phases, cost, errors."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpumon_tools import ROOT, python
from processes import ended
from runner_tools import wait_for

import gpumon


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No GPU on any machine: a file that is no library stands where the driver's would."""
    folder = tmp_path_factory.mktemp("no-driver")
    (folder / "libnvidia-ml.so.1").write_text("")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    for name in ("CUDA_VISIBLE_DEVICES", "RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)


def start_program(folder: Path, body: str) -> subprocess.Popen[str]:
    """A program under the monitor in its own process; it prints ``running`` inside."""
    code = "import gpumon, os, sys, time\n"
    code += f"with gpumon.Monitor({str(folder / 'trace')!r}, interval=0.02) as monitor:\n"
    code += "    print('running', flush=True)\n" + textwrap.indent(textwrap.dedent(body), "    ")
    program = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "running\n"
    return program


def test_records_host_and_phases_without_a_driver(tmp_path: Path) -> None:
    with gpumon.Monitor(tmp_path / "trace", interval=0.02) as monitor:
        with monitor.phase("train", epoch=1, items=100):
            time.sleep(0.15)
            with monitor.phase("step"):
                time.sleep(0.05)
        wait_for(lambda: len(monitor.read().to_pandas()) > 3)  # readable while it is being written
        time.sleep(0.12)
    frame = monitor.read().to_pandas()
    assert frame.index.name == "time (s)" and frame.index.is_monotonic_increasing
    assert frame["host/memory used (MiB)"].dropna().gt(0).all()
    assert frame["host/cpu (%)"].dropna().between(0, 100).all()
    assert frame["process/memory (MiB)"].max() > 20  # this test's own process, imports and all
    phases = monitor.read().phases()
    assert list(phases["phase"]) == ["train", "train/step"]
    assert phases["epoch"][0] == 1 and phases["seconds"][0] >= 0.2
    summary = monitor.read().summary().set_index(["phase", "device"])
    row = summary.loc[("train", "host")]
    assert row["items/s"] == pytest.approx(100 / row["seconds"])
    assert summary.loc[("(all)", "host"), "items"] == 100
    report = json.loads(json.dumps(monitor.read().metadata()))
    assert report["ended"] == "closed" and not report["nvml"]["available"]
    assert "no NVIDIA driver" in report["nvml"]["reason"]
    assert report["cadence"]["samples"] == frame["host/memory used (MiB)"].count()


def test_the_sampler_is_a_light_process_of_its_own(tmp_path: Path) -> None:
    with gpumon.Monitor(tmp_path / "trace") as monitor:
        pid = gpumon.read(tmp_path / "trace").header["sampler"]
        assert pid != os.getpid()
        maps = Path(f"/proc/{pid}/maps").read_text()
        assert "numpy" not in maps and "pandas" not in maps and "matplotlib" not in maps
    assert ended(pid)
    assert monitor.read().metadata()["sampler"]["memory (MiB)"] < 60


def test_child_processes_mark_in_the_same_trace(tmp_path: Path) -> None:
    with gpumon.Monitor(tmp_path / "trace", interval=0.02) as monitor, monitor.phase("run"):
        phases = "with marker.phase('train', items=10), marker.phase('step'): pass"
        code = f"import pickle\nmarker = pickle.loads({pickle.dumps(monitor)!r})\n{phases}"
        for _ in range(2):
            assert python("-c", code).returncode == 0
    phases = monitor.read().phases()
    counts = phases["phase"].value_counts()
    assert counts.to_dict() == {"run": 1, "run/train": 2, "run/train/step": 2}
    assert phases["process"].nunique() == 3
    assert not phases["open"].any()
    # Images of different processes add up; time is their union.
    row = monitor.read().summary().query("phase == 'run/train'").iloc[0]
    assert row["items"] == 20 and row["count"] == 2


def test_tasks_and_threads_have_phases_of_their_own(tmp_path: Path) -> None:
    marker = gpumon.Marker(tmp_path / "phases")

    async def task(name: str, turns: list[asyncio.Event]) -> None:
        with marker.phase(name):
            turns[0].set()
            await turns[1].wait()  # the other has opened its phase, and later closed it
            with marker.phase("step"):
                pass

    async def both() -> None:
        one, two = asyncio.Event(), asyncio.Event()
        with marker.phase("run"):
            await asyncio.gather(task("a", [one, two]), task("b", [two, one]))
            await asyncio.to_thread(
                lambda: marker.phase("thread").__enter__().__exit__(*[None] * 3)
            )
        assert marker.current == ""

    asyncio.run(both())
    with marker.phase("after"):
        pass
    lines = [json.loads(line) for line in (tmp_path / "phases").read_text().splitlines()]
    opened = [line[4] for line in lines if line[0] == "B"]
    assert sorted(opened) == [
        *("after", "run", "run/a", "run/a/step", "run/b", "run/b/step", "run/thread")
    ]


def test_a_phase_decorates_functions_and_coroutines(tmp_path: Path) -> None:
    marker = gpumon.Marker(tmp_path / "phases")

    @marker.phase("load", kind="fast")
    def load(depth: int) -> int:
        return 1 + (load(depth - 1) if depth else 0)

    assert load(1) == 2 and load.__name__ == "load"
    with pytest.raises(gpumon.MonitorError, match="neither a generator nor a coroutine"):

        @marker.phase("batches")
        def batches() -> Iterator[int]:
            yield 1

    lines = [json.loads(line) for line in (tmp_path / "phases").read_text().splitlines()]
    opened = [(line[4], line[5]) for line in lines if line[0] == "B"]
    assert opened == [("load", {"kind": "fast"}), ("load/load", {"kind": "fast"})]
    assert len(lines) == 4


def test_without_a_recorder_a_phase_decorates_nothing() -> None:
    code = "import gpumon\n@gpumon.phase('x')\ndef f(): return 3\nprint(f())"
    done = python("-c", code, GPUMON_TRACE="")
    assert done.stdout == "3\n", done.stderr


def test_interrupt_is_the_programs_and_the_trace_is_closed(tmp_path: Path) -> None:
    program = start_program(
        tmp_path,
        """
        try:
            with monitor.phase("train"):
                print("inside", flush=True)
                time.sleep(60)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            time.sleep(0.2)
        """,
    )
    assert program.stdout and program.stdout.readline() == "inside\n"
    os.killpg(program.pid, signal.SIGINT)  # as a terminal and Jupyter do
    out, _ = program.communicate(timeout=300)
    assert out == "interrupted\n" and program.returncode == 0
    trace = gpumon.read(tmp_path / "trace")
    assert trace.metadata()["ended"] == "closed"
    train = trace.phases().iloc[0]
    assert not train["open"] and train["end (s)"] < trace.recording.end - 0.15


@pytest.mark.parametrize("whom", ["program", "sampler", "both"])
def test_kill_nine_leaves_a_readable_trace(tmp_path: Path, whom: str) -> None:
    body = "with monitor.phase('train', items=5):\n    print('inside', flush=True)\n    input()\n"
    program = start_program(tmp_path, body)
    assert program.stdout and program.stdout.readline() == "inside\n"
    wait_for(lambda: len(gpumon.read(tmp_path / "trace").to_pandas()) > 5)
    before = gpumon.read(tmp_path / "trace")
    sampler = before.header["sampler"]
    if whom in ("sampler", "both"):
        os.kill(sampler, signal.SIGKILL)
    if whom in ("program", "both"):
        program.kill()
    moment = time.monotonic()
    if whom == "sampler":
        assert ended(sampler)
    _, err = program.communicate("\n", timeout=300)
    assert ended(sampler)
    trace = gpumon.read(tmp_path / "trace")
    assert len(trace.to_pandas()) >= len(
        before.to_pandas()
    )  # what was there to read is still there
    last = trace.header["start (monotonic s)"] + trace.to_pandas().index[-1]
    assert moment - last < 5  # one interval, and what a loaded machine adds
    assert trace.metadata()["ended"] == ("parent gone" if whom == "program" else "open or cut off")
    assert bool(trace.phases()["open"][0]) == (whom != "sampler")
    assert len(trace.summary()) and trace.plot()
    if whom == "sampler":
        assert program.returncode == 0 and "ended" in err


def test_sampler_ends_with_its_parent_although_a_fork_lives_on(tmp_path: Path) -> None:
    program = start_program(
        tmp_path,
        """
        child = os.fork()
        if child == 0:
            os.close(1); os.close(2)
            time.sleep(600)
            os._exit(0)
        print("forked", flush=True)
        time.sleep(600)
        """,
    )
    assert program.stdout and program.stdout.readline() == "forked\n"
    sampler = gpumon.read(tmp_path / "trace").header["sampler"]
    program.kill()
    try:
        program.communicate(timeout=300)
        assert ended(sampler)
    finally:
        os.killpg(program.pid, signal.SIGKILL)  # the fork


def test_ranks_with_one_path_keep_apart_and_read_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gpumon.Monitor(tmp_path / "trace", rank=0) as first:
        monkeypatch.setenv("RANK", "1")
        with gpumon.Monitor(tmp_path / "trace") as second, second.phase("train"):
            time.sleep(0.3)
    assert second.path.name == "trace-rank1" and first.path.name == "trace"
    both = gpumon.read(tmp_path / "trace*")
    assert [part.header["rank"] for part in both.parts] == [0, 1]
    assert list(both.phases()["rank"]) == [1]
    assert [device["name"] for device in both.devices] == ["host"]


def test_a_trace_that_is_being_written_is_not_overwritten(tmp_path: Path) -> None:
    with (
        gpumon.Monitor(tmp_path / "trace") as monitor,
        pytest.raises(gpumon.MonitorError, match="another monitor is writing"),
        gpumon.Monitor(tmp_path / "trace"),
    ):
        pass
    with gpumon.Monitor(tmp_path / "trace"):  # once it is free, it may be replaced
        pass
    assert monitor.read().metadata()["ended"] == "closed"


def test_user_errors_are_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(gpumon.MonitorError, match="cannot be written"),
        gpumon.Monitor(tmp_path / "file" / "trace"),
    ):
        pass
    with gpumon.Monitor(tmp_path / "trace") as monitor:
        with pytest.raises(gpumon.MonitorError, match="give the phase a name"):
            monitor.phase("")
        with pytest.raises(gpumon.MonitorError, match="theme"):
            monitor.plot(theme="pink")
        with pytest.raises(gpumon.MonitorError, match="by='week'"):
            monitor.read().summary(by="week")
