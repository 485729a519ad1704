"""How long each way takes over each grid: ranks under an ``mpiexec`` of their own measure it.

    mpiexec -n RANKS python -m mpi4py -m helpers.all_reduce.measure ORDER

is what :func:`run` starts; rank 0 prints what all have measured. Ways, grids and sizes take turns
within a round, so that a slow minute of the machine is everybody's.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from helpers import paths
from helpers.all_reduce import grids
from helpers.errors import UserError

MOST = 1000
"""Calls that are timed together."""
VARIANTS = ("sum", "sum, copied", "mean", "mean, folded")
"""What a way is measured as. The second is that of an array which is in no window (``rsap``)."""


def missing() -> str:
    """Why ranks of MPI cannot be started by this Python; "" if they can."""
    if importlib.util.find_spec("mpi4py") is None:
        return f"no mpi4py in {sys.prefix}"
    if not paths.MPIEXEC.exists():
        return f"no mpiexec in {paths.MPIEXEC.parent}"
    return ""


def run(
    ranks: int, sizes: Sequence[int], rounds: int, seconds: float, ranks_a_host: int = 0
) -> list[dict[str, Any]]:
    """Start so many ranks and have them measure.

    Args:
        ranks: at least 2.
        sizes: bytes of the messages, of float32.
        rounds: of all measurements.
        seconds: that each measurement of a round is to last, unless one call takes longer.
        ranks_a_host: where MPI has several hosts; 0: as it likes.

    Returns:
        A row a round and measurement: ranks, way, rows, columns, variant, bytes, round, seconds (of
        one call, those of the rank it took longest), copied (bytes, by rank 0 in one call).

    Raises:
        UserError: MPI is missing, or its ranks failed.
    """
    if why := missing():
        raise UserError(f"ranks of MPI cannot be started: {why}; make envs makes an environment")
    if ranks < 2 or any(size < 4 or size % 4 for size in sizes):
        raise UserError(
            f"{ranks} ranks, sizes {list(sizes)}: give at least 2, and multiples of 4 bytes"
        )
    order = {"sizes": list(sizes), "rounds": rounds, "seconds": seconds}
    words: list[str] = [str(paths.MPIEXEC), "-n", str(ranks)]
    words += ["-ppn", str(ranks_a_host)] if ranks_a_host else []
    words += [sys.executable, "-m", "mpi4py", "-m", __name__, json.dumps(order)]
    there = {"PYTHONPATH": str(paths.ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, env=os.environ | there, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise UserError(f"mpiexec with {ranks} ranks failed ({done.returncode}): {last}")
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(order: dict[str, Any]) -> None:
    """On a rank: measure, and print it if this is the first."""
    from mpi4py import MPI

    from helpers.all_reduce import ranks, ways

    world = MPI.COMM_WORLD
    each = [ranks.arrange(shape) for shape in grids.of(world.size)]
    cases: list[tuple[dict[str, Any], Callable[[], int]]] = []
    for size in order["sizes"]:
        outside = np.zeros(size // 4, np.float32)
        for grid in each:
            inside = grid.memory(size // 4, np.float32)
            inside[:] = 0
            for name, way in ways.WAYS.items():
                if name not in grids.OVER_GRIDS and grid is not each[-1]:
                    continue  # it knows of no grid
                for variant in VARIANTS:
                    if variant == "sum, copied" and name != "rsap":
                        continue
                    array = outside if name != "rsap" or variant == "sum, copied" else inside
                    about = {"way": name, "rows": grid.shape[0], "columns": grid.shape[1]}
                    about |= {"variant": variant, "bytes": size, "ranks": world.size}
                    how = {"mean": variant.startswith("mean"), "fold": variant == "mean, folded"}
                    cases.append((about, _call(way, grid, array, how)))

    def slowest(call: Callable[[], int], times: int) -> float:
        world.Barrier()
        began = time.perf_counter()
        for _ in range(times):
            call()
        found: float = world.allreduce((time.perf_counter() - began) / times, MPI.MAX)
        return found

    counts, copied = [], []
    for _, call in cases:
        copied.append(call())  # connections may be made in it
        counts.append(max(1, min(MOST, round(order["seconds"] / slowest(call, 2)))))
    rows = [
        about | {"round": turn, "seconds": slowest(call, times), "copied": bytes_copied}
        for turn in range(order["rounds"])
        for (about, call), times, bytes_copied in zip(cases, counts, copied, strict=True)
    ]
    if world.rank == 0:
        print(json.dumps(rows), flush=True)
    for grid in each:
        grid.free()


def _call(way: Any, grid: Any, array: np.ndarray, how: dict[str, bool]) -> Callable[[], int]:
    return lambda: int(way(grid, array, **how))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
