"""Run a function written in a notebook in one fresh process per device, as ``torchrun`` does.

A CUDA context and OpenMP's threads do not survive a fork: all replicas are forked from one server
process, which only imports. If one dies, the others are ended: they would wait for it for ever.
"""

import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import connection, forkserver, get_context, parent_process, set_start_method
from multiprocessing.connection import Connection
from threading import Lock, Thread
from types import MappingProxyType, ModuleType
from typing import Any

import cloudpickle

from helpers import network
from helpers.errors import FOR_USERS, Plain

SETTLE_SECONDS = 0.5
"""What other replicas get to say that the mistake was theirs."""
LONGEST = 75
"""Bytes of a folder's name: a socket's has 107, of which multiprocessing's own take 32."""


class ReplicaError(Plain, RuntimeError):
    """A replica failed; the message ends with the traceback of the first that did."""


def run(
    function: Callable[..., Any],
    count: int,
    *args: Any,
    heard: Callable[[Any], None] = lambda message: None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> list[Any]:
    """Call ``function(rank, *args)`` in ``count`` processes; the results in order of rank.

    ``heard`` is called here with every message that a replica sends meanwhile (:func:`tell`). The
    replicas get the variables of ``environment`` too.

    Raises:
        ReplicaError: naming the rank, with its traceback or the signal that killed it.
        UserError, DataError, MonitorError: what a replica raised that the user can put right.
    """
    payload = cloudpickle.dumps((function, args))
    context = _server()
    with temporary_folder("replicas-") as folder:
        variables = {**os.environ, **environment, "TMPDIR": folder}
        processes, pipes = [], []
        try:
            for rank in range(count):
                ours, theirs = context.Pipe(duplex=False)
                given = payload, rank, count, variables, theirs
                process = context.Process(target=_replica, args=given)
                with _main_hidden():
                    process.start()
                theirs.close()
                processes.append(process)
                pipes.append(ours)
            return _collect(processes, pipes, heard)
        finally:
            _end(processes)


def takes_sockets(folder: str) -> bool:
    """Whether replicas can meet in ``folder``: in a socket's address ``#`` and ``?`` end a path."""
    return len(os.fsencode(folder)) <= LONGEST and not {"#", "?"} & set(folder)


@contextmanager
def temporary_folder(prefix: str) -> Iterator[str]:
    """A folder for ``TMPDIR``, removed at the end; in ``/tmp`` if sockets cannot be elsewhere."""
    given = tempfile.gettempdir()
    parent = given if takes_sockets(f"{given}/{prefix}12345678") else "/tmp"
    with tempfile.TemporaryDirectory("", prefix, parent, ignore_cleanup_errors=True) as folder:
        yield folder


def warm_up() -> None:
    """Start the server now, so that it imports while the caller does other things."""
    _server()
    forkserver.ensure_running()


def in_one() -> bool:
    """Whether this process is a replica."""
    return hasattr(_Caller, "pipe")


def tell(message: Any) -> None:
    """Send a message from a replica to the caller of :func:`run`, who keeps waiting."""
    with _Caller.lock:
        _Caller.pipe.send_bytes(cloudpickle.dumps(("message", message)))


def _server() -> Any:
    """The context whose server imports, as it starts, what helpers and the notebook have here."""
    context = get_context("forkserver")
    values = vars(sys.modules["__main__"]).values()
    named = {value.__name__ for value in values if isinstance(value, ModuleType)}
    ours = {name for name in sys.modules if name.startswith("helpers.")}
    context.set_forkserver_preload(sorted(named | ours))
    return context


@contextmanager
def _main_hidden() -> Iterator[None]:
    """A process that starts here does not run this program's lines again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _collect(
    processes: list[Any], pipes: list[Connection], heard: Callable[[Any], None]
) -> list[Any]:
    results: dict[int, Any] = {}
    while len(results) < len(processes):
        left = [rank for rank in range(len(processes)) if rank not in results]
        # A dead replica's pipe stays open where a process that it forked lives on.
        connection.wait([on for rank in left for on in (pipes[rank], processes[rank].sentinel)])
        for rank in left:
            ended = not processes[rank].is_alive()
            if not pipes[rank].poll():
                if ended:
                    raise _died(rank, processes[rank])
                continue
            try:
                kind, value = cloudpickle.loads(pipes[rank].recv_bytes())
            except EOFError:
                raise _died(rank, processes[rank]) from None
            if kind == "message":
                heard(value)
            elif kind == "result":
                results[rank] = value
            else:
                raise _failure(rank, value, [pipes[other] for other in left if other != rank])
    return [results[rank] for rank in range(len(processes))]


def _failure(rank: int, said: Any, others: list[Connection]) -> Exception:
    """A user's mistake, of any replica: after the first all others fail, in a collective."""
    if isinstance(said, FOR_USERS):
        return said
    for pipe in connection.wait(others, SETTLE_SECONDS):
        with suppress(EOFError):
            kind, value = cloudpickle.loads(pipe.recv_bytes())  # type: ignore[union-attr]
            if kind == "failure" and isinstance(value, FOR_USERS):
                return value
    return ReplicaError(f"replica {rank} failed:\n{said}")


def _died(rank: int, process: Any) -> ReplicaError:
    process.join()
    return ReplicaError(f"replica {rank} died with exit code {process.exitcode}")


def _end(processes: list[Any]) -> None:
    """Each leads a process group, so what it forked (loader workers, an updater) ends with it."""
    for number, seconds in ((signal.SIGTERM, 10), (signal.SIGKILL, None)):
        for process in processes:
            with suppress(ProcessLookupError):
                if process.is_alive():
                    os.kill(process.pid, number)
            with suppress(ProcessLookupError):  # all of it is gone, or it does not lead one yet
                os.killpg(process.pid, number)
        for process in processes:
            process.join(seconds)


def _replica(
    payload: bytes, rank: int, count: int, environment: dict[str, str], pipe: Connection
) -> None:
    os.setpgid(0, 0)  # its own group: ended as one, and Ctrl-C is the caller's alone
    _Caller.pipe = pipe
    Thread(target=_end_with_the_caller, daemon=True).start()
    os.environ.update(environment)  # as it is now, not as it was when the first replicas ran
    tempfile.tempdir = None  # forget the server's
    # torchrun's names, so that a cell moved to a script under torchrun finds what it knows.
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
    # By default Gloo listens where any process that reaches the host could join.
    os.environ["GLOO_SOCKET_IFNAME"] = network.loopback()[0]
    # Loader workers are forked, as in a script: nothing they run has to be importable.
    set_start_method("fork", force=True)
    try:
        function, args = cloudpickle.loads(payload)
        answer = ("result", function(rank, *args))
    except FOR_USERS as error:
        answer = ("failure", error.with_traceback(None))
    except BaseException:
        answer = ("failure", traceback.format_exc())
    pipe.send_bytes(cloudpickle.dumps(answer))
    pipe.close()


class _Caller:
    """Who waits for this replica's answer."""

    pipe: Connection
    lock = Lock()
    """Several threads of a replica may tell something."""


def _end_with_the_caller() -> None:
    """A notebook killed in the middle would leave replicas that hold its GPUs."""
    caller = parent_process()
    assert caller is not None
    caller.join()
    os.killpg(0, signal.SIGKILL)
