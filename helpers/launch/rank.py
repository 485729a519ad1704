"""The program of a rank: join the other ranks and run the whole notebook in this process.

    python -m helpers.launch.rank FOLDER

A launcher starts it (``helpers.launch.launchers``); FOLDER holds the files of the run's ranks. The
process that the launcher knows forks the rank and supervises it. It reports that its host is alive,
and how the rank ended if the rank could not report that itself. It ends the rank and all of its
children when the runner asks for it or is gone; a rank that hangs in native code could not end
itself. It sets torchrun's variables before any cell runs, so that notebook code finds the same
variables as a script.
"""

import ctypes
import importlib
import importlib.util
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

from helpers.errors import FOR_USERS
from helpers.frameworks import devices, rank_info, replicas
from helpers.frameworks.rank_info import Place
from helpers.launch import notebook_engine, rendezvous, run_files, step_counter
from helpers.launch.run_files import ALIVE, BEAT_SECONDS, END, NOTEBOOK, SILENT_SECONDS

LOOK_SECONDS = 0.1
LONGEST = 1000
"""Characters of an error's line."""
_PR_SET_PDEATHSIG = 1


def main(folder: Path) -> int:
    """Run the notebook as one of several ranks; the exit status."""
    if os.environ.get(rank_info.VARIABLE) != str(folder):
        print("helpers.launch.rank: only a launcher starts it", file=sys.stderr)
        return 2
    if not Path(own := os.environ.get("TMPDIR", "/")).is_dir():  # the runner's, on another host
        os.environ["TMPDIR"] = str(Path(own).parent)
    order = run_files.read(folder / "order")
    rank = int(os.environ[order["rank in"]])
    # Slurm's own name, which a machine may have several of; mpiexec too begins its ranks by srun.
    host = os.environ.get(rank_info.SLURM_NODE) if order["rank in"] != "RANK" else None
    host = host or socket.gethostname()
    known, process = os.getpid(), os.fork()  # before anything starts a thread
    if process == 0:
        os.setpgid(0, 0)
        _die_with(known)
        return _rank(folder, order, rank, host)
    with suppress(OSError):  # parent and child both try; the first one succeeds
        os.setpgid(process, process)
    return _stand_by(folder, rank, host, process)


def _stand_by(folder: Path, rank: int, host: str, process: int) -> int:
    """Until the rank has ended; where it failed, until the runner has seen why."""
    ended_by: list[int] = []  # the launcher, which ends its ranks by a signal
    ended, statuses = Event(), []

    def wait() -> None:
        """See at once how the rank ends: a moment later others fail for it, and say so."""
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: ended_by.append(number))
    Thread(target=wait, daemon=True).start()
    alive, pulse, status = None, 0, None
    since, beaten = time.monotonic(), -BEAT_SECONDS
    while True:
        now = time.monotonic()
        if now - beaten >= BEAT_SECONDS:
            beaten, pulse = now, pulse + 1
            with suppress(OSError):
                run_files.write(folder / f"pulse-{rank}", pulse)
            with suppress(OSError):
                if (said := run_files.read(folder / ALIVE)) != alive:
                    alive, since = said, now
        asked = bool(ended_by) or (folder / END).exists() or not folder.is_dir()
        asked = asked or now - since > SILENT_SECONDS
        if asked:
            _kill(process)
        if status is None and ended.is_set():
            status = statuses[0]
            _kill(process)  # what it has left of its group
            if not asked and (status or not (folder / f"done-{rank}").exists()):
                with suppress(OSError):
                    about = {"rank": rank, "host": host, "status": status}
                    run_files.write_last(folder / f"died-{rank}", about)
        if status == 0 or (status is not None and asked):
            return status if status >= 0 else 128 - status
        if status is None:
            ended.wait(LOOK_SECONDS)
        else:
            time.sleep(LOOK_SECONDS)


def _rank(folder: Path, order: Mapping[str, Any], rank: int, host: str) -> int:
    try:
        here = rendezvous.join(folder, order, rank, host)
        _take(here, order)
        Thread(target=step_counter.say_where, args=(folder / f"state-{rank}",), daemon=True).start()
        own = folder.parent if rank == 0 else folder.parent / f"rank-{rank}"
        own.mkdir(exist_ok=True)
        notebook_engine.execute(
            folder / NOTEBOOK,
            own / NOTEBOOK,
            lambda cell: run_files.write(folder / f"cell-{rank}", cell),
        )
        run_files.write(folder / f"done-{rank}", True)
    except BaseException as error:
        of_cell = isinstance(error, notebook_engine.CellError) and error.__cause__
        with suppress(OSError):
            _say_why(folder, rank, host, of_cell or error)
        with suppress(OSError):  # last: on a full disk the launcher ends with the first line of it
            print(error if of_cell else traceback.format_exc(), file=sys.stderr, flush=True)
            sys.stdout.flush()
        os._exit(1)  # Python's own end would wait for all others, where there is MPI
    return 0


def _take(here: Place, order: Mapping[str, Any]) -> None:
    """Be that rank: in this process, for its framework, and for what the cells look at."""

    def fail(said: str) -> None:
        _say_why(here.folder, here.rank, here.hosts[here.rank], RuntimeError(said), said)

    rank_info.take(here, fail)
    os.environ.update(here.environment())
    os.environ[replicas.RENDEZVOUS] = "env://"
    # torchrun promises with this that it listens at MASTER_PORT. No process listens at our port,
    # so all ranks would wait.
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    _see_own_gpus(here)
    hooks = f"helpers.frameworks.{order['framework']}_ranks"
    if order["framework"] and importlib.util.find_spec(hooks):
        own = getattr(importlib.import_module(hooks), "environment", None)
        os.environ.update(own(here) if own else {})


def _say_why(
    folder: Path, rank: int, host: str, error: BaseException, line: str | None = None
) -> None:
    about = {"rank": rank, "host": host, "said": line or _line(error)}
    about |= {"ename": type(error).__name__, "evalue": str(error)[:LONGEST]}
    about |= {"for users": isinstance(error, FOR_USERS)}
    run_files.write_last(folder / f"error-{rank}", about)


def _line(error: BaseException) -> str:
    """``ValueError: no such file``: an error's type and the first line of what it says.

    Of a user's mistake the line alone.
    """
    kind = "" if isinstance(error, FOR_USERS) else f"{type(error).__name__}: "
    said = (f"{kind}{error}".strip().splitlines() or [type(error).__name__])[0]
    return said.rstrip(": ")[:LONGEST]


def _see_own_gpus(here: Place) -> None:
    """The GPUs of this rank's node: by UUID, because CUDA and NVML number them differently.

    On one machine each simulated node has other GPUs. On a machine of its own it has what is there,
    or what Slurm gave this step.
    """
    if here.kind != "gpu":
        return
    first = here.node * here.devices if here.virtual else 0
    if own := devices.visible()[first : first + here.devices]:
        os.environ["CUDA_VISIBLE_DEVICES"] = devices.cuda_names(own)


def _kill(process: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)


def _die_with(parent: int) -> None:
    with suppress(OSError, AttributeError):  # Linux alone can
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was quicker
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
