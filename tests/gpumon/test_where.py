"""Where people look: Chrome traces and decorators."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpumon_tools import ROOT, Marks, python, write

import gpumon
from gpumon import export
from gpumon.__main__ import main

MARKS: Marks = (("train", 1.0, 3.0, {"epoch": 1}), ("train/step", 1.0, 2.0, {}))


def test_chromes_trace_has_slices_counters_and_a_profile_beside(tmp_path: Path) -> None:
    marks: Marks = (*MARKS, ("crossing", 2.5, 4.0, {}))
    trace = gpumon.read(write(tmp_path / "t", {"gpu0": [10, 10, None, 40]}, marks=marks))
    content = json.loads(trace.export(tmp_path / "t.json").read_text())
    assert content[export.BASE] == 1_800_000_000_000_000_000
    slices = {e["name"]: e for e in content["traceEvents"] if e["ph"] == "X"}
    assert (slices["train"]["ts"], slices["train"]["dur"]) == (1e6, 2e6)
    assert slices["train"]["tid"] == slices["train/step"]["tid"] != slices["crossing"]["tid"]
    busy = [e for e in content["traceEvents"] if e["name"] == "utilisation (%)"]
    assert [(e["ts"], e["args"]["value"]) for e in busy] == [(0, 10), (3e6, 40)]

    profile = tmp_path / "profile.json"
    for base, at in ((1_799_999_990_000_000_000, 11e6), (None, (1.8e9 + 1) * 1e6)):
        event = {"ph": "X", "name": "aten::mm", "ts": at, "dur": 5, "pid": 7, "tid": 7}
        based = {export.BASE: base} if base else {}
        profile.write_text(json.dumps({**based, "traceEvents": [event]}))
        arguments = ["export", str(tmp_path / "t"), "-o", str(tmp_path / "both.json")]
        assert main([*arguments, "--profile", str(profile)]) == 0
        events = json.loads((tmp_path / "both.json").read_text())["traceEvents"]
        starts = {e["name"]: e["ts"] for e in events if e["ph"] == "X"}
        assert starts["train"] == pytest.approx(starts["aten::mm"], abs=1)
    for wrong in ("{", "[1", '{"traceEvents": 3}', "7"):
        profile.write_text(wrong)
        with pytest.raises(gpumon.MonitorError, match="not a profile in Chrome's format"):
            trace.export(tmp_path / "both.json", profile=profile)


PROFILED = """
import sys, time
import torch, gpumon
with gpumon.Monitor("t") as monitor, torch.profiler.profile() as profile:
    with monitor.phase("step"), torch.profiler.record_function("the step"):
        torch.ones(99, 99) @ torch.ones(99, 99)
        time.sleep(0.2)
profile.export_chrome_trace("profile.json")
gpumon.read("t").export("both.json", profile="profile.json")
"""


def in_kernel(kernel: str, code: str, folder: Path) -> None:
    """Run code in one of the frameworks' environments."""
    python = ROOT / ".venvs" / kernel / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no environment {kernel} here: make envs")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([python, "-c", code], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def test_it_lines_up_with_torchs_profiler(tmp_path: Path) -> None:
    in_kernel("pytorch", PROFILED, tmp_path)
    events = json.loads((tmp_path / "both.json").read_text())["traceEvents"]
    spans = {e["name"]: e for e in events if e.get("ph") == "X" and "step" in e["name"]}
    ours, theirs = spans["step"], spans["the step"]
    assert abs(ours["ts"] - theirs["ts"]) < 20_000 and abs(ours["dur"] - theirs["dur"]) < 40_000


def test_a_phase_decorates_functions_and_coroutines(tmp_path: Path) -> None:
    marker = gpumon.Marker(tmp_path / "marks")

    @marker.phase("load", kind="fast")
    def load(depth: int) -> int:
        return 1 + (load(depth - 1) if depth else 0)

    @marker.phase("fetch")
    async def fetch(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return marker.current

    async def both() -> list[str]:
        with marker.phase("run"):
            return list(await asyncio.gather(fetch(0.02), fetch(0.01)))

    assert load(1) == 2 and load.__name__ == "load"
    assert asyncio.run(both()) == ["run/fetch", "run/fetch"]
    with pytest.raises(gpumon.MonitorError, match="cannot decorate a generator"):

        @marker.phase("batches")
        def batches() -> Iterator[int]:
            yield 1

    lines = [json.loads(line) for line in (tmp_path / "marks").read_text().splitlines()]
    opened = [(line[4], line[5]) for line in lines if line[0] == "B"]
    assert opened[:2] == [("load", {"kind": "fast"}), ("load/load", {"kind": "fast"})]
    assert [name for name, _ in opened[2:]] == ["run", "run/fetch", "run/fetch"]
    assert len(lines) == 10


def test_without_a_recorder_a_phase_decorates_nothing() -> None:
    code = "import gpumon\n@gpumon.phase('x')\ndef f(): return 3\nprint(f())"
    done = python("-c", code, GPUMON_TRACE="")
    assert done.stdout == "3\n", done.stderr
