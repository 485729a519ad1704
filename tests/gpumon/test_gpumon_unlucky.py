"""The monitor in odd programs and on odd machines: it neither stops them nor loses a trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from gpumon_tools import ROOT, python

import gpumon
from gpumon.trace_files import write_atomically

HERE = {**os.environ, "PYTHONPATH": str(ROOT)}
RECORD = [sys.executable, "-m", "gpumon", "record", "--"]


def test_a_phase_that_is_open_is_not_opened_again(tmp_path: Path) -> None:
    marker = gpumon.Marker(tmp_path / "t.phases.jsonl")
    phase = marker.phase("train")
    with phase, pytest.raises(gpumon.MonitorError, match="'train' is open already"):
        phase.__enter__()
    with phase:  # one after the other is fine
        assert marker.current == "train"
    assert marker.current == ""


class Odd:
    def __str__(self) -> str:
        raise RuntimeError("no text")


CIRCLE: list[object] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    "value", [{(1, 2): 3}, CIRCLE, Odd(), 10**5000], ids=["key", "circle", "no text", "long"]
)
def test_an_attribute_that_json_cannot_hold_ends_no_program(tmp_path: Path, value: object) -> None:
    marker = gpumon.Marker(tmp_path / "t.phases.jsonl")
    with marker.phase("train", value=value, items=3):
        assert marker.current == "train"
    assert marker.current == ""
    assert (tmp_path / "t.phases.jsonl").read_text().count("\n") == 2


def test_a_link_leads_to_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("dear all")
    (tmp_path / "t.jsonl").symlink_to("letter")
    os.link(tmp_path / "letter", tmp_path / "u.jsonl")
    for name in ("t", "u"):
        with gpumon.Monitor(tmp_path / name):
            pass
        assert gpumon.read(tmp_path / name).metadata()["ended"] == "closed"
    assert (tmp_path / "letter").read_text() == "dear all"


def test_an_interrupt_leaves_nothing_half_written_and_is_one_line(tmp_path: Path) -> None:
    def interrupted(file: Path) -> None:
        file.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "chart.png", interrupted)
    assert not list(tmp_path.iterdir())
    (tmp_path / "matplotlib.py").write_text(
        f"import os; os.kill(os.getpid(), {signal.SIGINT.value})\n"
    )
    with gpumon.Monitor(tmp_path / "t"):
        pass
    there = f"{tmp_path}{os.pathsep}{ROOT}"
    done = python("-m", "gpumon", "plot", tmp_path / "t", PYTHONPATH=there)
    assert (done.returncode, done.stderr) == (130, "gpumon: interrupted\n")


def test_the_exit_code_of_a_command_where_ended_children_are_ignored(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpumon", "record", "--out", tmp_path / "t", "--", "false"],
        env=HERE,
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
    )
    assert done.returncode == 1


def test_a_working_folder_that_is_gone_is_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", *RECORD, "true"],
        cwd=tmp_path,
        env=HERE,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("gpumon: the working folder is gone")


def test_a_program_without_its_streams_is_recorded(tmp_path: Path) -> None:
    words = [*RECORD[:-1], "--out", str(tmp_path / "t"), "--", "true"]
    done = subprocess.run(words, env=HERE, timeout=60, preexec_fn=lambda: os.closerange(0, 3))
    assert done.returncode == 0
    assert gpumon.read(tmp_path / "t").metadata()["ended"] == "closed"
