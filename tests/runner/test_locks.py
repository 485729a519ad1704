"""Who works on a batch: one command at a time."""

import signal
import subprocess
from collections.abc import Iterator

import psutil
import pytest
from runner_tools import BEGIN, FINISH, REAL, WAIT, Suite, images_fixture, suite_fixture, wait_for

from helpers import record
from helpers.errors import UserError
from helpers.runner import locks

__all__ = ["images_fixture", "suite_fixture"]


@pytest.fixture(name="first")
def first_fixture(suite: Suite) -> Iterator["subprocess.Popen[str]"]:
    """A job that works on the batch "one"."""
    suite.notebook("PyTorch_MultiGPU", REAL, WAIT)
    command = suite.start("--name", "one", env={"SLURM_JOB_ID": "1"})
    pids = suite.run("one", "PyTorch_MultiGPU") / "pids"
    wait_for(lambda: pids.exists() and len(pids.read_text("utf-8").split()) == 2)
    suite.notebook("PyTorch_MultiGPU", BEGIN, FINISH)
    yield command
    command.send_signal(signal.SIGTERM)
    command.communicate(timeout=60)


def test_two_jobs_at_once(
    suite: Suite,
    first: "subprocess.Popen[str]",
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With other names both work, and the second leaves the first's processes alone."""
    suite.without_kernels()
    monkeypatch.setenv("SLURM_JOB_ID", "2")
    assert suite.compare("--name", "one") == 2
    line = capsys.readouterr().err
    assert line.startswith("error: another rosetta run works on the experiment 'one'; wait for it")
    assert "give this one another --name" in line
    assert suite.compare("--name", "two") == 0
    assert first.poll() is None
    started = (suite.run("one", "PyTorch_MultiGPU") / "pids").read_text("utf-8").split()
    assert all(psutil.pid_exists(int(process)) for process in started)
    assert record.read(suite.run("one", "PyTorch_MultiGPU"))["state"] == "running"


@pytest.mark.usefixtures("suite")
def test_on_one_machine_two_outside_of_jobs_would_measure_each_other() -> None:
    with (
        locks.only_one(),
        pytest.raises(UserError, match="another rosetta run is active on this machine; wait"),
        locks.only_one(),
    ):
        pass
    with locks.only_one():
        pass
