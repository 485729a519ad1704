"""Run a notebook's cells in this process, as a rank if it is one of several: it joins them by MPI.

    mpiexec -n 2 python -m helpers.launch NOTEBOOK ORDER

``helpers.runner.ranks`` starts it. Jupyter would start a kernel without the descriptors by which
MPI's ranks meet. ORDER is JSON: see ``place.of_all``; ``{}`` for one process. A rank has
torchrun's variables before any cell runs, so that notebook code finds the same variables as a
script. Rank 0 writes the notebook back with its output; the others write theirs into ``rank-1`` and
so on next to it.
"""

import importlib
import importlib.util
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gpumon.record import end_with_parent
from helpers.errors import UserError
from helpers.frameworks import devices, rank_info
from helpers.frameworks.rank_info import Place
from helpers.launch import cells, failures, place

LOOK_SECONDS = 0.005
"""Between two looks whether all ranks have come: MPI's own waiting would use a whole core."""
NOTICE_SECONDS = 0.5
"""The time that a failed rank stays: if another has died, it is the first to be told of."""


def main(notebook: Path, order: Mapping[str, Any]) -> None:
    """Run the notebook, alone or as one of several ranks; an error ends the process, and all."""
    name, rank, own = "", 0, notebook
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell put us behind
    try:
        content = json.loads(notebook.read_text(encoding="utf-8"))
        if order:
            name = os.environ.get(rank_info.SLURM_NODE) or socket.gethostname()
            _tell_when_it_ends(name)
            from mpi4py import MPI  # joins MPI; not in processes that import this module again

            world = MPI.COMM_WORLD.Dup()  # the framework may use the first one
            rank = world.Get_rank()
            _join(world, name, order)
            own = notebook if rank == 0 else notebook.parent / f"rank-{rank}" / notebook.name
        cells.execute(content, own, lambda cell: failures.tell(rank=rank, cell=cell))
        rank_info.exchange(None)
        failures.tell(rank=rank, done=True)
        sys.stdout.flush()
    except BaseException as error:
        unwritten = isinstance(error, OSError) and str(error.filename) == str(own)
        more = {"unwritten": error.errno} if unwritten else {}  # type: ignore[attr-defined]
        failures.tell_why(rank, name, error, **more)
        traceback.print_exc()
        if not order:
            signal.pause()  # the runner ends this process, and first looks for all that it started
        time.sleep(NOTICE_SECONDS)
        os._exit(1)  # Python's own end would wait for all others


def _tell_when_it_ends(name: str) -> None:
    """Return in a child process, which is the rank; this one stays, and tells how the child ended.

    mpiexec kills all others as soon as one has ended, and prints the first that was killed.
    """
    child = os.fork()
    if not child:
        end_with_parent(signal.SIGKILL)
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    failures.tell(rank=int(os.environ["PMI_RANK"]), host=name, ended=failures.how(code))
    os._exit(code if code >= 0 else 128 - code)


def _join(world: Any, name: str, order: Mapping[str, Any]) -> None:
    """Find this rank's place among all ranks, and take it."""

    def gather(value: Any) -> list[Any]:
        waiting = world.Ibarrier()
        while not waiting.Test():
            time.sleep(LOOK_SECONDS)
        found: list[Any] = world.allgather(value)
        return found

    about = {"launcher": "mpiexec", "launcher_version": version("mpich")}
    here = place.of_all(gather, world.Get_rank(), name, {**order, "about": about})
    _check_hosts(here, virtual=order["virtual"])
    _take(here, order["framework"])


def _check_hosts(here: Place, *, virtual: bool) -> None:
    """Whether the hosts that came are those that were asked for."""
    wanted, size = 1 if virtual else here.nodes, here.ranks_a_node
    by_node = [here.hosts[first : first + size] for first in range(0, here.ranks, size)]
    if len(set(here.hosts)) != wanted or any(len(set(each)) > 1 for each in by_node):
        raise UserError(
            f"expected {wanted} host(s) with {size} rank(s) for each node, but the ranks are "
            f"on {', '.join(here.hosts)}"
        )


def _take(here: Place, framework: str) -> None:
    """Be that rank: in this process, for its framework, and for what the cells look at."""
    rank_info.take(here, lambda said: failures.tell_why(here.rank, here.hosts[here.rank], said))
    os.environ.update(here.environment())
    # torchrun promises with this that it listens at MASTER_PORT. No process listens at our port,
    # so all ranks would wait.
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    _see_own_gpus(here)
    hooks = f"helpers.frameworks.{framework}_ranks"
    if framework and importlib.util.find_spec(hooks):
        own = getattr(importlib.import_module(hooks), "environment", None)
        os.environ.update(own(here) if own else {})


def _see_own_gpus(here: Place) -> None:
    """The GPUs of this rank's node: by UUID, because CUDA and NVML number them differently.

    On one machine each simulated node has other GPUs. On a machine of its own it has what is there,
    or what Slurm gave this step.
    """
    first = here.node * here.devices if here.virtual else 0
    if here.kind == "gpu" and (own := devices.visible()[first : first + here.devices]):
        os.environ["CUDA_VISIBLE_DEVICES"] = devices.cuda_names(own)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
