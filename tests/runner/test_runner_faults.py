"""Every write of a batch fails once: one line, the true reason, nothing lost, and it goes on."""

import errno
import io
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import faults
import psutil
import pytest
from runner_tools import BEGIN, FINISH, REAL, WAIT, Suite, images_fixture, suite_fixture, wait_for

from helpers import paths, record
from helpers.errors import naming
from helpers.launch import processes
from helpers.runner import kernel_processes

__all__ = ["images_fixture", "suite_fixture"]

ONE = "PyTorch_MultiGPU"
TWO = "PyTorch_MultiGPU_Exp_Loss"
SAID = {errno.ENOSPC: "No space left on device", errno.EROFS: "Read-only file system"}


@pytest.fixture
def quick(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """Two runs whose kernels answer at once, so that each write can have its turn.

    What a kernel writes, it writes in a process of its own, where nothing is made to fail.
    """
    made = suite.folder / "made"
    made.mkdir()
    content = json.loads((suite.folder / "made.json").read_text("utf-8"))

    def execute(
        source: Path,
        target: Path,
        parameters: dict[str, Any],
        *,
        reached: Callable[[str, int, int], None] = lambda section, cell, cells: None,
        **_: Any,
    ) -> None:
        reached("9. Train", 1, 1)
        cell = {"metadata": {"papermill": {"status": "completed"}}}
        whole = {"cells": [cell], "metadata": {"papermill": {"end_time": "now"}}}
        with naming(target):
            target.write_text(json.dumps(whole), encoding="utf-8")
        if "run" in parameters:
            (made / "record.json").write_text(
                json.dumps(content | {"run": content["run"] | {"notebook": source.stem}}), "utf-8"
            )
            subprocess.run(["cp", str(made / "record.json"), parameters["run"]], check=True)

    def save(batch: Path) -> None:
        paths.write_atomically(batch / "report.html", "<html>")

    suite.to_the_end()
    monkeypatch.setattr(kernel_processes, "execute", execute)
    monkeypatch.setattr("helpers.results.report.load", lambda batch: batch)
    monkeypatch.setattr("helpers.results.conclusions.headline", lambda batch: "")
    monkeypatch.setattr("helpers.results.report.save", save)
    for name in (ONE, TWO):
        suite.notebook(name, BEGIN, FINISH)
    return suite


def stray(folder: Path) -> list[Path]:
    """Files that somebody began to write and nobody finished."""
    return [path for path in folder.rglob(".*") if path.name not in (".locks", ".reserve")]


EVERY = [3, pytest.param(1, marks=pytest.mark.slow)]


@faults.alone
@pytest.mark.parametrize("every", EVERY)
def test_every_write_of_the_runner(
    quick: Suite, capsys: pytest.CaptureFixture[str], every: int
) -> None:
    """Each of them in `make soak`, every third one in `make test`."""
    runs = paths.RUNS
    calls = faults.count(lambda: quick.compare("--name", "b"), below=runs)
    assert quick.states("b") == {ONE: "finished", TWO: "finished"}
    assert calls > 40
    for number in range(1, calls + 1, every):
        error = list(SAID)[number % len(SAID)]
        shutil.rmtree(runs)
        capsys.readouterr()
        with faults.failing(number, error, below=runs):
            code = quick.compare("--name", "b")
        said = capsys.readouterr().err
        where = f"write {number} of {calls}, {SAID[error]}: {said}"
        # 1 where only Compare or the report could not be written, 0 where nothing was needed of it.
        assert code == (2 if said.startswith(f"error: {runs}") else 1), where
        assert len(said.splitlines()) == 1 and SAID[error] in said, where
        assert not stray(runs), where
        if (runs / "b" / "experiment.json").exists():
            for run in quick.journal("b")["runs"]:
                if run["state"] == "interrupted":
                    assert SAID[error] in run["reason"], where
                elif run["state"] == "finished":
                    assert record.read(runs / "b" / f"{run['notebook']}-1x")["state"] == "finished"
                else:
                    assert run["state"] == "waiting", where
        kept = [path for path in runs.glob("b/*/record.json") if record.read(path)["state"]]
        over = (runs / "b" / "experiment.json").exists() and quick.journal("b")["finished"]
        if code == 2 and not over:  # the last of all can fail when everything is told
            assert quick.compare("--name", "b") == 0, where
            assert quick.states("b") == {ONE: "finished", TWO: "finished"}, where
            said_before = [run["earlier"] for run in quick.journal("b")["runs"]]
            assert "killed" not in str(said_before), where
        assert all(path.exists() for path in kept), where


@faults.alone
def test_every_line_on_a_pipe_that_none_reads(quick: Suite) -> None:
    calls = faults.count(lambda: quick.compare("--name", "b"), fd=faults.STDOUT)
    assert calls > 10
    for number in range(1, calls + 1):
        shutil.rmtree(paths.RUNS)
        with (
            faults.failing(number, errno.EPIPE, fd=faults.STDOUT, lasting=True),
            redirect_stderr(io.StringIO()) as said,
        ):
            code = quick.compare("--name", "b")
        where = f"line {number} of {calls}: {said.getvalue()}"
        assert not stray(paths.RUNS), where
        if code == 141:  # as of `compare … | head`: nothing has begun
            assert not said.getvalue() and not (paths.RUNS / "b" / "experiment.json").exists(), (
                where
            )
            continue
        assert (code, len(said.getvalue().splitlines())) == (2, 1), where
        assert "standard output: Broken pipe" in said.getvalue(), where
        if (paths.RUNS / "b" / "experiment.json").exists():
            for run in quick.journal("b")["runs"]:
                assert run["state"] in ("waiting", "interrupted", "finished"), where
                assert run["state"] != "interrupted" or "Broken pipe" in run["reason"], where
            if quick.journal("b")["finished"] is None:
                assert quick.compare("--name", "b") == 0, where


def test_a_disk_that_fills_up_while_a_run_goes_on(suite: Suite) -> None:
    """A real one, and a real kernel: the journal still says what happened."""
    fills = """
with open(Path(run).parents[1] / "ballast", "wb") as file:
    try:
        while True:
            file.write(bytes(2**16)); file.flush()
    except OSError:
        pass"""
    suite.notebook(ONE, BEGIN, FINISH)
    suite.notebook(TWO, REAL, fills, "print('x' * 10**6)", "1 / 0")
    with faults.disk(suite.folder / "runs", "size=8m"):
        command = suite.start("--name", "full", errors=subprocess.PIPE)
        _, errors = command.communicate(timeout=300)
        assert command.returncode == 2, errors
        assert len(errors.splitlines()) == 1 and "No space left on device" in errors
        assert suite.states("full") == {ONE: "finished", TWO: "interrupted"}
        assert "No space left on device" in suite.journal("full")["runs"][1]["reason"]
        content: Any = record.read(suite.run("full", TWO))
        assert content["state"] == "interrupted" and "No space left" in content["reason"]
        (suite.folder / "runs" / "ballast").unlink()
        suite.notebook(TWO, BEGIN, FINISH)
        assert suite.compare("--name", "full") == 0
        (came,) = suite.journal("full")["runs"][1]["earlier"]
        assert "No space left on device" in came


def test_runs_that_may_not_be_written(suite: Suite, capsys: pytest.CaptureFixture[str]) -> None:
    suite.notebook(ONE, BEGIN, FINISH)
    with faults.disk(suite.folder / "runs", "ro"):
        assert suite.compare() == 2
        said = capsys.readouterr().err
        assert len(said.splitlines()) == 1 and "runs/.locks: Read-only file system" in said
        assert suite.compare("--dry-run") == 0


def test_the_terminal_goes_while_a_run_goes_on(suite: Suite) -> None:
    """Its window is closed: the batch ends in order although nobody can be told."""
    suite.notebook(ONE, REAL, WAIT)
    leader, follower = os.openpty()
    own = "import os, fcntl, termios; os.setsid(); fcntl.ioctl(1, termios.TIOCSCTTY, 0)"
    command = suite.start("--name", "gone", output=follower, env={"TERM": "xterm"}, first=own)
    os.close(follower)
    pids = suite.run("gone", ONE) / "pids"
    while not pids.exists():
        os.read(leader, 65536)
    wait_for(lambda: len(pids.read_text("utf-8").split()) == 2)
    family = psutil.Process(command.pid).children(recursive=True)
    os.close(leader)
    assert command.wait(timeout=300) == 130
    assert not [process for process in family if processes.lives(process.pid)]
    (run,) = suite.journal("gone")["runs"]
    assert run["state"] == "interrupted" and run["reason"].startswith("stopped by SIGHUP")
