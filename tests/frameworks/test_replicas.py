import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from data_prep.errors import DataError
from gpumon.errors import MonitorError
from helpers import paths
from helpers.errors import UnsupportedError, UserError
from helpers.frameworks import replicas
from helpers.record.processes import lives


def replicas_of(process: psutil.Process) -> list[psutil.Process]:
    """Replicas are children of the server, which stays to start the next."""
    servers = [c for c in process.children() if any("forkserver" in part for part in c.cmdline())]
    return [replica for server in servers for replica in server.children()]


def test_results_come_in_order_of_rank() -> None:
    offset = 10  # a closure, as in a notebook: shipped by value

    def replica(rank: int, factor: int) -> tuple[int, str, str, int]:
        return offset + factor * rank, os.environ["RANK"], os.environ["WORLD_SIZE"], os.getpid()

    (a, *first, pid0), (b, *second, pid1) = replicas.run(replica, 2, 5)
    assert (a, b) == (10, 15)
    assert (first, second) == (["0", "2"], ["1", "2"])
    assert len({pid0, pid1, os.getpid()}) == 3


IMPORTED = """
from helpers.frameworks import replicas
def run(sys):
    import helpers.record
    print(replicas.run(lambda rank: 'helpers.record' in sys.modules, 2))
run(__import__('sys'))
"""


def test_what_the_callers_helpers_have_imported_no_replica_imports_again() -> None:
    """Also where the caller is a program, whose ``__main__`` has no name for the framework."""
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True)
    assert done.stdout == "[True, True]\n", done.stderr


@pytest.mark.parametrize("kind", [UserError, UnsupportedError, DataError, MonitorError])
def test_a_users_mistake_comes_back_as_it_was_raised(kind: type[Exception]) -> None:
    def wrong(rank: int) -> None:
        raise kind("give fewer devices")

    with pytest.raises(kind, match=r"^give fewer devices$"):
        replicas.run(wrong, 2)


def test_interrupting_the_caller_leaves_no_process() -> None:
    def replica(rank: int) -> Any:
        time.sleep(600)

    timer = threading.Timer(3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        replicas.run(replica, 2)
    assert not replicas_of(psutil.Process())


def forking(folder: Path) -> None:
    """Fork a process like Chainer's updater's, and leave its number in the folder."""
    child = multiprocessing.Process(target=time.sleep, args=(600,))
    child.start()
    (folder / f"{os.getpid()}.part").write_text(str(child.pid))
    (folder / f"{os.getpid()}.part").rename(folder / str(os.getpid()))


def forked(folder: Path, count: int) -> list[psutil.Process]:
    """The processes that ``count`` replicas forked, once all have."""
    while len(found := [path for path in folder.iterdir() if path.suffix != ".part"]) < count:
        time.sleep(0.1)
    return [psutil.Process(int(path.read_text())) for path in found]


def none_lives(processes: list[int]) -> bool:
    """Whether all end soon; a zombie has ended, and is for whoever inherited it to bury."""
    end = time.monotonic() + 60
    while any(map(lives, processes)):
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def test_a_killed_replica_whose_own_processes_live_on_is_noticed(tmp_path: Path) -> None:
    """They hold its pipe open, so that it alone would never tell."""

    def replica(rank: int) -> None:
        forking(tmp_path)
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(600)

    with pytest.raises(replicas.ReplicaError, match="replica 1 died with exit code -9"):
        replicas.run(replica, 2)
    left = [int(path.read_text()) for path in tmp_path.iterdir() if path.suffix != ".part"]
    assert left and none_lives(left)


def test_what_a_replica_forked_ends_with_it(tmp_path: Path) -> None:
    def replica(rank: int) -> int:
        forking(tmp_path)
        if rank == 1:
            forked(tmp_path, 2)
            raise ValueError("planted")
        time.sleep(600)
        return rank

    with pytest.raises(replicas.ReplicaError, match=r"replica 1 failed[\s\S]*planted"):
        replicas.run(replica, 2)
    assert not replicas_of(psutil.Process())
    assert none_lives([int(path.read_text()) for path in tmp_path.iterdir()])


def fork_and_sleep(rank: int, folder: Path) -> None:
    forking(folder)
    time.sleep(600)


def test_replicas_end_when_the_caller_is_killed_with_what_they_forked(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    own = {**os.environ, "TMPDIR": str(tmp_path_factory.mktemp("t"))}
    own["PYTHONPATH"] = f"{paths.ROOT}:{Path(__file__).parent}"
    program = "import sys, pathlib, test_replicas as t\n"
    program += "t.replicas.run(t.fork_and_sleep, 2, pathlib.Path(sys.argv[1]))"
    caller = psutil.Popen([sys.executable, "-c", program, str(tmp_path)], env=own)
    children = forked(tmp_path, 2)
    found = replicas_of(caller)
    assert len(found) == 2
    caller.kill()
    caller.wait()
    assert none_lives([process.pid for process in found + children])
