"""The command line, run as users run it, and what happens when the disk is full."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import fake_nvml
import pytest
from gpumon_tools import ROOT, gpu, python

import gpumon
from gpumon.__main__ import main
from gpumon.live_chart import LiveView, chart_file


def command(*arguments: str, cwd: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    return python("-m", "gpumon", *arguments, cwd=cwd, COLUMNS="100", **extra)


def test_record_passes_the_exit_code_and_the_programs_own_phases(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = "import gpumon, sys\nwith gpumon.phase('train', epoch=1): pass\nsys.exit(7)"
    done = command(
        "record", "--interval", "0.05", "--out", "run/trace", "--", sys.executable, "-c", program,
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 7, done.stderr
    trace = gpumon.read(tmp_path / "run" / "trace")
    assert list(trace.phases()["phase"]) == ["command", "train"]
    assert main(["summary", str(trace.path)]) == 0 and "train" in capsys.readouterr().out
    chart = tmp_path / "chart.svg"
    assert main(["plot", str(trace.path), "-o", str(chart)]) == 0
    assert capsys.readouterr().out == f"{chart}\n" and "<svg" in chart.read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("summary nothing", "does not exist"),
        ("record --", "no command was given"),
        ("record -- no-such-program", "cannot run no-such-program"),
        ("record --interval 0 -- true", "seconds between samples"),
        ("plot run/trace chart.png", "give -o: gpumon plot run/trace -o chart.png"),
        ("plot t --titel x", "unrecognized arguments: --titel x; run gpumon --help"),
        ("export t", "required: -o/--out; run gpumon export --help"),
        ("no-such", "invalid choice: 'no-such'"),
    ],
)
def test_user_errors_are_one_line_and_exit_2(
    tmp_path: Path,
    arguments: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments.split()) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and words in said.err, said.err


def test_no_earlier_trace_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("gpumon-trace", "gpumon-trace-2"):
        assert main(["record", "--", "true"]) == 0
        assert gpumon.read(name).metadata()["ended"] == "closed"


def test_gpus_that_were_asked_for_are_refused_without_a_driver(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("")  # no library, whatever the machine has
    record = ("record", "--out", "trace", "--gpu-ids", "99", "--", "touch", "ran")
    done = command(*record, cwd=tmp_path, LD_LIBRARY_PATH=str(tmp_path))
    assert done.returncode == 2
    assert re.fullmatch(r"gpumon: no GPU 99 on this machine: no NVIDIA driver.*\n", done.stderr)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["libnvidia-ml.so.1"]


def test_devices_says_what_can_be_measured_and_why_not_the_rest(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(gpu(0, "utilisation 5\nmemory 100\ngpm 1\ngpm2 30"))
    seen = fake_nvml.environment(script)
    text = command("devices", cwd=tmp_path, **seen).stdout
    assert "NVIDIA H200" in text and "yes  utilisation (%)" in text
    assert "no   power (W): nvmlDeviceGetPowerUsage: Not Supported" in text
    (tmp_path / "libnvidia-ml.so.1").write_text("")  # no library, whatever the machine has
    alone = command("devices", cwd=tmp_path, LD_LIBRARY_PATH=str(tmp_path)).stdout
    assert "GPUs: none" in alone and "yes  cpu (%)" in alone


@pytest.mark.parametrize("told", ["default", "error", "ignore"])
def test_a_warning_is_one_line_and_no_exit_code(tmp_path: Path, told: str) -> None:
    script = tmp_path / "script"
    script.write_text(gpu(0, f"utilisation 70\nprocesses {os.getpid()} 100"))
    words = ("--interval", "0.05", "--out", "t", "--", "sleep", "0.2")
    done = command(
        "record", *words, cwd=tmp_path, **fake_nvml.environment(script), PYTHONWARNINGS=told
    )
    assert done.returncode == 0, done.stderr
    warning, *rest = done.stderr.splitlines()
    assert warning.startswith("gpumon: warning: GPU 0 is shared with ")
    assert [line.partition(";")[0] for line in rest] == ["gpumon: trace in t"]


def test_live_view_redraws_without_the_program_drawing(tmp_path: Path) -> None:
    pictures: list[bytes] = []

    with gpumon.Monitor(tmp_path / "trace", interval=0.05) as monitor, monitor.phase("train"):
        view = LiveView(monitor.path, 0.1, pictures.append)
        chart_file(monitor.path).write_bytes(b"first")  # as the drawing process would
        deadline = time.monotonic() + 60
        while not pictures and time.monotonic() < deadline:
            time.sleep(0.02)
        view.stop()
    assert pictures[0] == b"first"
    assert pictures[-1].startswith(b"\x89PNG")
    assert not list(tmp_path.glob(".*"))


def test_the_drawing_process_draws_and_ends_with_its_parent(tmp_path: Path) -> None:
    with gpumon.Monitor(tmp_path / "trace", interval=0.05) as monitor:
        time.sleep(0.1)
    config = json.dumps({"path": str(monitor.path), "period": 0.1, "parent": os.getpid()})
    subprocess.run(
        [sys.executable, "-m", "gpumon.live_chart", config],
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        timeout=300,
    )
    assert chart_file(monitor.path).read_bytes().startswith(b"\x89PNG")
