"""A rank's program: it joins the others, runs the notebook's cells as text, and answers calls.

    python -m helpers.launch.rank FOLDER

An engine starts it (``helpers.launch.engines``); FOLDER is that of the run's messages. It sets
torchrun's variables before any cell runs, so that what stands in the notebook finds what it would
find in a script.
"""

import importlib
import importlib.util
import linecache
import os
import socket
import sys
import time
import traceback
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from helpers import network
from helpers.errors import FOR_USERS
from helpers.frameworks import devices, place, replicas
from helpers.frameworks.place import Place
from helpers.launch import letters, serving, watch

LONGEST = 1000
"""Characters of an error's line."""


def main(folder: Path) -> int:
    """Join, run the cells, and serve; the exit status."""
    if os.environ.get(place.VARIABLE) != str(folder):
        print("helpers.launch.rank: only a launcher starts it", file=sys.stderr)
        return 2
    if not Path(own := os.environ.get("TMPDIR", "/")).is_dir():  # the coordinator's, elsewhere
        os.environ["TMPDIR"] = str(Path(own).parent)
    order = letters.received(folder / "order")
    rank = int(os.environ[order["rank in"]])
    # Slurm's own name, which a machine may have several of; mpiexec too begins its ranks by srun.
    host = os.environ.get(place.SLURM_NODE) if order["rank in"] != "RANK" else None
    host = host or socket.gethostname()
    return watch.under_watch(folder, rank, host, lambda: _rank(folder, order, rank, host))


def _rank(folder: Path, order: dict[str, Any], rank: int, host: str) -> int:
    try:
        here = _join(folder, order, rank, host)
        sys.path[:] = order["path"]
        _run_cells(order["cells"])
        if serving.handed() is None:
            raise RuntimeError("the cells ended before this_run.rehearse(...) had its lesson")
        serving.serve(folder, here.rank)
    except BaseException as error:
        _say_why(folder, rank, host, _line(error))
        traceback.print_exc()
        sys.stderr.flush()
        return 1  # without Python's own end, where MPI would wait for all others
    return 0


def _say_why(folder: Path, rank: int, host: str, said: str) -> None:
    letters.say_last(folder / f"error-{rank}", {"rank": rank, "host": host, "said": said})


def _join(folder: Path, order: dict[str, Any], rank: int, host: str) -> Place:
    """Meet the others: nobody goes on before all are in."""
    joined = {"rank": rank, "host": host, "token": folder.name, "process": os.getpid()}
    joined["on"] = socket.gethostname()
    joined["machine"] = {"cpus": os.cpu_count(), "gpus": devices.visible_gpus()}
    joined |= {"addresses": network.addresses(), "ports": [network.free_port() for _ in range(2)]}
    letters.say(folder / f"joined-{rank}", joined)
    while not (folder / "met").exists():
        time.sleep(0.02)
    met = letters.received(folder / "met")
    here = Place(rank=rank, folder=folder, **met)
    place.take(here, partial(_say_why, folder, rank, host))
    os.environ.update(here.environment())
    os.environ[replicas.RENDEZVOUS] = "env://"
    _see_own_gpus(here, order["gpus here"])
    hooks = f"helpers.frameworks.{order['framework']}_ranks"
    if order["framework"] and importlib.util.find_spec(hooks):
        os.environ.update(importlib.import_module(hooks).environment(here))
    return here


def _see_own_gpus(here: Place, there: int) -> None:
    """The GPUs of this rank's node: by UUID, because CUDA and NVML number them differently.

    On one machine each virtual node has GPUs of its own, as far as there are so many. On a machine
    of its own it has what is there, or what Slurm gave this step.
    """
    if here.kind != "gpu":
        return
    if here.virtual:
        shown = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(there)))).split(",")
        own = [shown[(here.node * here.devices + n) % len(shown)] for n in range(here.devices)]
    else:
        own = [gpu.uuid for gpu in devices.visible()[: here.devices]]
    if own:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(dict.fromkeys(own))


def _run_cells(cells: list[tuple[str, str]]) -> None:
    """Run the cells, by name and text, in a module as a notebook's or a script's."""
    module = sys.modules["__main__"] = ModuleType("__main__")
    for name, text in cells:
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile(text, name, "exec"), vars(module))


def _line(error: BaseException) -> str:
    """``ValueError: no such file``: an error's type and the first line of what it says.

    Of a user's mistake the line alone.
    """
    kind = "" if isinstance(error, FOR_USERS) else f"{type(error).__name__}: "
    said = f"{kind}{error}".strip().splitlines()[0]
    return said.rstrip(": ")[:LONGEST]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
