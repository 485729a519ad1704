"""Run a function written in a notebook in one fresh process per device.

What ``torchrun`` does for scripts: frameworks that drive each GPU from a process of its own
(PyTorch's DistributedDataParallel) need processes, and processes can import a module but not a
notebook cell. So the function is shipped by value with cloudpickle. Processes are never forked
from the notebook's own, for a CUDA context and OpenMP's threads do not survive that: one server
process, which only imports what the notebook imports, is started at the first call, and all
replicas are forked from it. Importing a framework takes seconds, and so it is done once.
"""

import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing import connection, get_context, parent_process, set_start_method
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import cloudpickle
import psutil

RENDEZVOUS = "REPLICA_RENDEZVOUS"
"""Environment variable with a ``file://`` address at which the replicas of one run meet."""


class ReplicaError(RuntimeError):
    """A replica failed; the message ends with the traceback of the first that did."""


def run(function: Callable[..., Any], count: int, *args: Any) -> list[Any]:
    """Call ``function(rank, *args)`` in ``count`` processes; the results in order of rank.

    When one replica fails or dies, or the caller is interrupted, all are ended: those left would
    wait in an all-reduce for ever.

    Raises:
        ReplicaError: naming the rank, with its traceback or the signal that killed it.
    """
    payload = cloudpickle.dumps((function, args))
    context = get_context("forkserver")
    context.set_forkserver_preload(_imported_by(function))  # heeded when the server starts
    with tempfile.TemporaryDirectory(prefix="replicas-") as folder:
        rendezvous = f"file://{Path(folder) / 'rendezvous'}"
        processes, pipes = [], []
        try:
            for rank in range(count):
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(
                    target=_replica,
                    args=(payload, rank, count, rendezvous, dict(os.environ), theirs),
                )
                process.start()
                theirs.close()
                processes.append(process)
                pipes.append(ours)
            return _collect(processes, pipes)
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.join(10)
                if process.is_alive():
                    process.kill()


def _imported_by(function: Callable[..., Any]) -> list[str]:
    """The modules that the notebook and the function's own module have under a name."""
    spaces = (vars(sys.modules["__main__"]), getattr(function, "__globals__", {}))
    named = [value for space in spaces for value in space.values()]
    return sorted({module.__name__ for module in named if isinstance(module, ModuleType)})


def _collect(processes: list[Any], pipes: list[Connection]) -> list[Any]:
    results: dict[int, Any] = {}
    waiting = {pipe: rank for rank, pipe in enumerate(pipes)}
    while waiting:
        for pipe in connection.wait(list(waiting)):
            assert isinstance(pipe, Connection)
            rank = waiting.pop(pipe)
            try:
                succeeded, value = cloudpickle.loads(pipe.recv_bytes())
            except EOFError:
                processes[rank].join()
                code = processes[rank].exitcode
                raise ReplicaError(f"replica {rank} died with exit code {code}") from None
            if not succeeded:
                raise ReplicaError(f"replica {rank} failed:\n{value}")
            results[rank] = value
    return [results[rank] for rank in range(len(processes))]


def _replica(
    payload: bytes,
    rank: int,
    count: int,
    rendezvous: str,
    environment: dict[str, str],
    pipe: Connection,
) -> None:
    Thread(target=_end_with_the_caller, daemon=True).start()
    os.environ.update(environment)  # as it is now, not as it was when the first replicas ran
    # torchrun's names, so that a cell moved to a script under torchrun finds what it knows.
    os.environ.update(
        {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(count),
            RENDEZVOUS: rendezvous,
            # All are on this machine. Left to itself Gloo listens at the address that the host's
            # name stands for, where whoever reaches it could join in: it asks for no password.
            "GLOO_SOCKET_IFNAME": _loopback(),
        }
    )
    # Else a replica would fork its own from a server too. Loader workers are forked, as in a
    # script, because nothing they run has to be importable and they never touch the device.
    set_start_method("fork", force=True)
    try:
        function, args = cloudpickle.loads(payload)
        answer = (True, function(rank, *args))
    except BaseException:
        answer = (False, traceback.format_exc())
    pipe.send_bytes(cloudpickle.dumps(answer))
    pipe.close()


def _loopback() -> str:
    """The name of the network interface that only this machine reaches: ``lo`` on Linux."""
    return next(
        name
        for name, addresses in psutil.net_if_addrs().items()
        if any(address.address == "127.0.0.1" for address in addresses)
    )


def _end_with_the_caller() -> None:
    """A notebook killed in the middle would leave replicas that hold its GPUs."""
    caller = parent_process()
    assert caller is not None
    caller.join()
    os._exit(1)
