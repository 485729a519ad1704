import os
import signal
import sys
import threading
import time
from typing import Any

import psutil
import pytest

from helpers import replicas


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


def test_where_gloo_listens_is_not_for_the_shell_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth0")

    def replica(rank: int) -> list[str]:
        addresses = psutil.net_if_addrs()[os.environ["GLOO_SOCKET_IFNAME"]]
        return [address.address for address in addresses]

    assert all("127.0.0.1" in found for found in replicas.run(replica, 2))


def test_one_failure_ends_all() -> None:
    def replica(rank: int) -> None:
        if rank == 1:
            raise ValueError("planted")
        time.sleep(600)

    began = time.monotonic()
    with pytest.raises(replicas.ReplicaError, match=r"replica 1 failed[\s\S]*planted"):
        replicas.run(replica, 2)
    assert time.monotonic() - began < 500
    assert not replicas_of(psutil.Process())


def test_a_killed_replica_is_named() -> None:
    def replica(rank: int) -> None:
        if rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(600)

    with pytest.raises(replicas.ReplicaError, match="replica 0 died with exit code -9"):
        replicas.run(replica, 2)


def test_interrupting_the_caller_leaves_no_process() -> None:
    def replica(rank: int) -> Any:
        time.sleep(600)

    timer = threading.Timer(3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        replicas.run(replica, 2)
    assert not replicas_of(psutil.Process())


SLEEPING = "import time; from helpers import replicas; replicas.run(lambda rank: time.sleep(99), 2)"


def test_replicas_end_when_the_caller_is_killed() -> None:
    caller = psutil.Popen([sys.executable, "-c", SLEEPING])
    while len(replicas := replicas_of(caller)) < 2:
        assert caller.poll() is None
        time.sleep(0.1)
    caller.kill()
    caller.wait()
    _, alive = psutil.wait_procs(replicas, timeout=300)
    assert not alive
