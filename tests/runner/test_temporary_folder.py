"""What a batch leaves in the temporary folder: nothing, however its runs end."""

import os
import signal
import tempfile
from pathlib import Path

import pytest
from runner_tools import BEGIN, FINISH, REAL, Suite, images_fixture, suite_fixture, wait_for

from helpers import paths

__all__ = ["images_fixture", "suite_fixture"]

LEAVE = f"""
import sys; sys.path[:0] = [{str(paths.ROOT)!r}]
import multiprocessing.util, os, signal, tempfile
from helpers.frameworks import replicas
def replica(rank, dies=False):
    tempfile.mkdtemp()
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
tempfile.mkdtemp()
replicas.run(replica, 2)
"""
ENDS = {
    "ends": FINISH,
    "replica": "replicas.run(replica, 2, True)",
    "kernel": "os.kill(os.getpid(), signal.SIGKILL)",
}
WAIT = "(Path(run) / 'waits').touch(); import time; time.sleep(600)"


@pytest.fixture
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("t")


def test_a_batch_leaves_nothing_whether_runs_end_or_are_killed(suite: Suite, empty: Path) -> None:
    for name, last in ENDS.items():
        suite.notebook(f"{name}_MultiGPU", BEGIN, LEAVE, last)
    command = suite.start("--name", "b", env={"TMPDIR": str(empty)})
    told, _ = command.communicate(timeout=300)
    assert suite.states("b") == {
        "ends_MultiGPU": "finished", "replica_MultiGPU": "failed", "kernel_MultiGPU": "failed"
    }, told  # fmt: skip
    assert "died with exit code -9" in told
    assert not list(empty.iterdir())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_batch_that_is_stopped_leaves_nothing(
    suite: Suite, empty: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a killed runner leaves is removed when it is resumed."""
    suite.notebook("PyTorch_MultiGPU", REAL, LEAVE, WAIT)
    command = suite.start("--name", "b", env={"TMPDIR": str(empty)})
    try:
        wait_for((suite.run("b", "PyTorch_MultiGPU") / "waits").exists)
        assert list(empty.iterdir()), "else nothing is tested"
    finally:
        os.kill(command.pid, number)
        command.communicate(timeout=300)
    if number == signal.SIGKILL:
        suite.notebook("PyTorch_MultiGPU", BEGIN, FINISH)
        monkeypatch.setattr(tempfile, "tempdir", str(empty))
        assert suite.compare("--name", "b") == 0
    assert not list(empty.iterdir())
