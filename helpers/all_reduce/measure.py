"""Measure how long each all-reduce algorithm takes over each grid of ranks.

:func:`run` starts the ranks, and rank 0 prints the measurements of all of them::

    mpiexec -n RANKS python -m mpi4py -m helpers.all_reduce.measure ORDER

Algorithms, grids and sizes alternate within a round, so that a slow minute of the machine affects
all of them.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import psutil

from helpers import paths
from helpers.all_reduce import grids
from helpers.errors import UserError

MOST = 1000
"""Calls that are timed together."""
LARGEST = 256 << 20
"""Bytes of the largest message where the machine's memory allows it."""


def room(ranks_a_host: int) -> int:
    """The largest message, up to ``LARGEST`` bytes, that this number of ranks can measure here.

    A rank takes four times that; half of the free memory is left to others.
    """
    found = LARGEST
    while found > 1 << 20 and 4 * found * ranks_a_host > psutil.virtual_memory().available / 2:
        found //= 4
    return found


def run(
    ranks: int, sizes: Sequence[int], rounds: int, seconds: float, ranks_a_host: int = 0
) -> list[dict[str, Any]]:
    """Start the ranks and let them measure.

    Args:
        ranks: at least 2.
        sizes: bytes of the messages, of float32.
        rounds: of all measurements.
        seconds: that each measurement of a round is to last, unless one call takes longer.
        ranks_a_host: where MPI has several hosts; 0: as it likes.

    Returns:
        A row a round and measurement: method, rows, columns, bytes, round, seconds (of one call, on
        the slowest rank).

    Raises:
        UserError: MPI is missing, or the ranks failed.
    """
    if ranks < 2 or any(size < 4 or size % 4 for size in sizes):
        raise UserError(
            f"{ranks} ranks, sizes {list(sizes)}: give at least 2, and multiples of 4 bytes"
        )
    if not paths.MPIEXEC.exists():
        raise UserError(f"no mpiexec in {paths.MPIEXEC.parent}: run 'make envs'")
    order = {"sizes": list(sizes), "rounds": rounds, "seconds": seconds}
    words: list[str] = [str(paths.MPIEXEC), "-n", str(ranks)]
    words += ["-ppn", str(ranks_a_host)] if ranks_a_host else []
    words += [sys.executable, "-m", "mpi4py", "-m", __name__, json.dumps(order)]
    there = {"PYTHONPATH": str(paths.ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, env=os.environ | there, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise UserError(f"mpiexec with {ranks} ranks failed ({done.returncode}): {last}")
    return json.loads(done.stdout.splitlines()[-1])


def main(order: Mapping[str, Any]) -> None:
    """On a rank: measure, and print it if this is the first."""
    from mpi4py import MPI

    from helpers.all_reduce import methods

    world, found, counts = MPI.COMM_WORLD, [], {}

    def slowest(call: Callable[[], Any], times: int) -> float:
        world.Barrier()
        began = time.perf_counter()
        for _ in range(times):
            call()
        return world.allreduce((time.perf_counter() - began) / times, MPI.MAX)

    each = [methods.arrange(shape) for shape in grids.of(world.size)]
    arrays = [np.zeros(size // 4, np.float32) for size in order["sizes"]]
    for repeat in range(order["rounds"]):
        for array, grid in itertools.product(arrays, each):
            rows, columns = grid.shape
            inside = grid.memory(array.size, np.float32)
            inside[:] = 0
            for name, method in methods.METHODS.items():
                if name not in grids.OVER_GRIDS and rows > 1:
                    continue  # what knows of no grid is measured over (1, n) alone
                about = {"rows": rows, "columns": columns, "bytes": array.nbytes, "method": name}
                key = tuple(about.values())
                call = partial(method, grid, inside if name == "rsap" else array)
                # Connections are made in it, and memory is touched for the first time.
                if repeat == 0 or name == "rsap":
                    call()
                if repeat == 0:
                    takes = slowest(call, 1)
                    counts[key] = max(1, min(MOST, round(order["seconds"] / takes)))
                found.append(about | {"round": repeat, "seconds": slowest(call, counts[key])})
            grid.forget()  # one grid's windows at a time: all would be many times the array
    if world.rank == 0:
        print(json.dumps(found), flush=True)
    for grid in each:
        grid.free()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
