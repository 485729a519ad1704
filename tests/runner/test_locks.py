"""Who works on a batch: one command at a time, on whatever host of a shared filesystem."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from runner_tools import BEGIN, FINISH, REAL, WAIT, Suite, images_fixture, suite_fixture, wait_for

from helpers import paths, record
from helpers.errors import UserError
from helpers.launch import processes
from helpers.runner import locks

__all__ = ["images_fixture", "suite_fixture"]

ELSEWHERE = {"host": "node7", "process_space": "another-boot pid:[4026531836]"}


@pytest.fixture(name="lock")
def lock_fixture(tmp_path: Path) -> Path:
    (tmp_path / ".locks").mkdir()
    return tmp_path / ".locks" / "some.json"


def said_by(path: Path, **other: Any) -> None:
    said = processes.own() | {"since": "2026-11-23T07:12+00:00"} | other
    path.write_text(json.dumps(said))


def take(path: Path) -> None:
    with locks.held(path, "somebody has it"):
        assert json.loads(path.read_text())["process"] == os.getpid()


def test_it_is_gone_afterwards(lock: Path) -> None:
    take(lock)
    assert not lock.exists()


def test_another_hosts_is_never_stolen(lock: Path) -> None:
    """Whatever runs here under its number; the line names who, and says what to do."""
    for number in (os.getpid(), 2**31 - 1):
        said_by(lock, **ELSEWHERE, process=number)
        with pytest.raises(UserError) as refused:
            take(lock)
        assert str(refused.value) == (
            f"somebody has it (process {number} on node7, since 2026-11-23T07:12+00:00): this "
            f"host cannot check whether it still runs. If it has ended, remove {lock} and start "
            "again"
        )
        assert lock.exists()
    lock.unlink()
    take(lock)


def test_one_of_a_process_that_has_ended_is_taken_over(lock: Path) -> None:
    own = processes.own()
    said_by(lock, process=2**31 - 1)
    take(lock)
    said_by(lock, process_ticks=own["process_ticks"] - 1)  # its number is now ours
    take(lock)
    said_by(lock, process_space=ELSEWHERE["process_space"])  # before this machine's last start
    take(lock)


def test_where_the_filesystem_forgets_locks_the_living_keep_theirs(lock: Path) -> None:
    said_by(lock)
    with pytest.raises(UserError, match=rf"process {os.getpid()} on .*: it runs\. If"):
        take(lock)


def test_a_job_that_slurm_began_again_takes_its_own_over(
    lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first attempt has ended, on whatever node it was; another job's may not have."""
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    for other in ({"job": " 13", "starts": "0"}, {"job": " 12", "starts": "1"}):
        said_by(lock, **ELSEWHERE, **other)
        with pytest.raises(UserError, match="cannot check whether it still runs"):
            take(lock)
    said_by(lock, **ELSEWHERE, job=" 12", starts="0")
    take(lock)


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
    assert line.startswith(
        "error: another rosetta run works on the experiment 'one' (job 1, process "
    )
    assert f"process {first.pid} on " in line and "give this one another --name" in line
    assert suite.compare("--name", "two") == 0
    assert first.poll() is None
    started = (suite.run("one", "PyTorch_MultiGPU") / "pids").read_text("utf-8").split()
    assert all(psutil.pid_exists(int(process)) for process in started)
    assert record.read(suite.run("one", "PyTorch_MultiGPU"))["state"] == "running"
    assert not locks.of_batch("two").exists() and locks.of_batch("one").exists()


def test_on_one_machine_two_outside_of_jobs_would_measure_each_other(suite: Suite) -> None:
    with (
        locks.only_one(),
        pytest.raises(UserError, match=f"active on this machine .process {os.getpid()} on "),
        locks.only_one(),
    ):
        pass
    assert not list((paths.RUNS / locks.FOLDER).iterdir())
