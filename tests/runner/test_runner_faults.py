"""A disk that fills up or is read-only, and a terminal that goes: one line, and it continues."""

import os
import subprocess

import faults
import psutil
import pytest
from runner_tools import BEGIN, FINISH, REAL, WAIT, Suite, wait_for

from helpers.record import processes

ONE = "PyTorch_MultiGPU"
TWO = "PyTorch_MultiGPU_DataParallel"


def test_a_disk_that_fills_up_while_a_run_goes_on(suite: Suite) -> None:
    """A real one, and a real kernel: the run is made again."""
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
        tells = {"PYTHONWARNINGS": "always::ResourceWarning"}  # of an event loop that is left open
        command = suite.start("--name", "full", errors=subprocess.PIPE, env=tells)
        _, errors = command.communicate(timeout=300)
        assert command.returncode == 2, errors
        assert len(errors.splitlines()) == 1 and "No space left on device" in errors
        assert suite.states("full") == {ONE: "finished", TWO: "interrupted"}
        (suite.folder / "runs" / "ballast").unlink()
        suite.notebook(TWO, BEGIN, FINISH)
        assert suite.compare("--name", "full") == 0


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
    (run,) = suite.runs("gone")
    assert run["state"] == "interrupted" and run["reason"].startswith("stopped by SIGHUP")
