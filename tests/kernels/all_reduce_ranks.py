"""On every rank: what is wrong with all methods over all grids; rank 0 prints it as JSON.

mpiexec -n RANKS python -m mpi4py tests/kernels/all_reduce_ranks.py
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from mpi4py import MPI

from helpers.all_reduce import grids, methods
from helpers.all_reduce.methods import Grid, Method

WORLD = MPI.COMM_WORLD
ODD = 1003
CASES = (
    *((np.int64, size) for size in (0, 1, WORLD.size - 1, ODD)),
    *((dtype, ODD) for dtype in (np.float16, np.float32, np.float64)),
    (np.float32, 1),
)


def of_all(size: int, dtype: Any) -> np.ndarray:
    """What all ranks bring, (ranks, size)."""
    random = np.random.default_rng([size, WORLD.size])
    if np.dtype(dtype).kind == "f":
        return random.standard_normal((WORLD.size, size)).astype(dtype)
    return random.integers(0, np.iinfo(dtype).max, (WORLD.size, size), dtype)  # they overflow


def wrong_sum(grid: Grid, method: Method, dtype: Any, size: int) -> tuple[str, bytes]:
    """What is wrong with the sum on this rank ("" if nothing is), and its bits."""
    brought = of_all(size, dtype)
    own = brought[WORLD.rank].copy()
    method(grid, own)
    exact: np.ndarray = brought.sum(0, np.longdouble if own.dtype.kind == "f" else dtype)
    if own.dtype.kind != "f":
        return "" if np.array_equal(own, exact) else "not the sum", own.tobytes()
    # Each of the additions may be off by half a unit in the last place of what is added up so far.
    bound = (WORLD.size - 1) * np.finfo(dtype).eps / 2 * np.abs(brought).sum(0, np.longdouble)
    beyond = (np.abs(own - exact) > 1.01 * bound).any()
    return "beyond what another order explains" if beyond else "", own.tobytes()


def wrong_mean(grid: Grid, method: Method) -> str:
    """It is the sum's, bit for bit."""
    total, averaged = (of_all(ODD, np.float32)[WORLD.rank].copy() for _ in range(2))
    method(grid, total)
    method(grid, averaged, mean=True)
    return "" if np.array_equal(total * (1 / WORLD.size), averaged) else "not the mean"


def findings(grid: Grid, method: Method) -> list[str]:
    """What is wrong with a method over a grid, on any rank."""
    each = WORLD.allgather([wrong_sum(grid, method, *case) for case in CASES])
    found = []
    for (dtype, size), of_ranks in zip(CASES, zip(*each, strict=True), strict=True):
        wrong = {told for told, _ in of_ranks if told}
        if len({bits for _, bits in of_ranks}) > 1:
            wrong.add("not the same bits on all ranks")
        found += [f"{np.dtype(dtype)}, {size}: {told}" for told in sorted(wrong)]
    return found


def wrong_window(grid: Grid) -> str:
    """What is wrong with the sum of an array into which others Put."""
    own = grid.memory(ODD, np.float64)
    own[:] = np.arange(ODD)
    methods.rsap(grid, own)
    return "" if np.array_equal(own, WORLD.size * np.arange(ODD)) else "not the sum"


def planted() -> dict[str, Callable[..., None]]:
    """Methods that are wrong."""

    def one_bit_off(grid: Grid, array: np.ndarray) -> None:
        methods.plain(grid, array)
        if grid.world.rank == 1 and array.dtype.kind == "f" and array.size == ODD:
            array[7] = np.nextafter(array[7], array.dtype.type(np.inf))

    return {
        "columns are not added": lambda g, a: methods.rsaa(replace(g, column=MPI.COMM_SELF), a),
        "rows are not added": lambda g, a: methods.rsaa(replace(g, row=MPI.COMM_SELF), a),
        "the last one is left out": lambda g, a: methods.ring(g, a[:-1]),
        "one rank has another bit": one_bit_off,
    }


def main() -> None:
    found: dict[str, Any] = {"wrong": {}, "planted": {}}
    for shape in grids.of(WORLD.size):
        grid = methods.arrange(shape)
        for name, method in methods.METHODS.items():
            # Those that know of no grid need be tried on one only.
            if name in grids.OVER_GRIDS or shape[0] == 1:
                key = f"{name} {grids.in_words(shape)}"
                means = WORLD.allgather(wrong_mean(grid, method))
                found["wrong"][key] = [*findings(grid, method), *filter(None, means)]
        windows = WORLD.allgather(wrong_window(grid))
        found["wrong"][f"window {grids.in_words(shape)}"] = [*filter(None, windows)]
        grid.free()
    if WORLD.size == 4:
        grid = methods.arrange((2, 2))
        found["planted"] = {name: findings(grid, method) for name, method in planted().items()}
        grid.free()
    if WORLD.rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
