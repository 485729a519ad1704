"""What a batch leaves in the temporary folder: nothing, however its runs end."""

import pytest
from runner_tools import BEGIN, FINISH, Suite

from helpers import paths

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


def test_a_batch_leaves_nothing_whether_runs_end_or_are_killed(
    suite: Suite, tmp_path_factory: pytest.TempPathFactory
) -> None:
    empty = tmp_path_factory.mktemp("t")
    for name, last in ENDS.items():
        suite.notebook(f"{name}_MultiGPU", BEGIN, LEAVE, last)
    command = suite.start("--name", "b", env={"TMPDIR": str(empty)})
    told, _ = command.communicate(timeout=300)
    states = suite.states("b")
    assert [states[f"{name}_MultiGPU"] for name in ENDS] == ["finished", "failed", "failed"], told
    assert "died with exit code -9" in told
    assert not list(empty.iterdir())
