"""Four methods to all-reduce an array over the MPI ranks, and the ranks as a grid.

Importing this module joins MPI.

All have one signature, ``method(grid, array, mean=False)``, and work in place: afterwards every
rank's contiguous ``array`` holds the sum, or of floats the mean, of all ranks', the same bits on
each. The mean is the sum times 1 / n, as in ChainerMN; a rank averages its share before others get
it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mpi4py import MPI

from helpers.all_reduce import grids

Method = Callable[..., None]


@dataclass
class Grid:
    """A rank's place in a grid of ranks, numbered row by row, and whom it meets there."""

    shape: grids.Shape
    world: Any
    """MPI's communicator of all ranks."""
    row: Any
    """That of this rank's row; it has as many ranks as there are columns."""
    column: Any
    _scratch: dict[np.dtype, np.ndarray] = field(default_factory=dict)
    _windows: dict[int, Any] = field(default_factory=dict)

    def scratch(self, size: int, dtype: np.dtype) -> np.ndarray:
        """Memory of this rank's own, (size,), until it is asked for again."""
        if dtype not in self._scratch or self._scratch[dtype].size < size:
            self._scratch[dtype] = np.empty(size, dtype)
        return self._scratch[dtype][:size]

    def window(self, nbytes: int) -> Any:
        """MPI's window onto this many bytes of every rank of the row; all ranks must ask for it."""
        if nbytes not in self._windows:
            self._windows[nbytes] = MPI.Win.Allocate(nbytes, 1, comm=self.row)
        return self._windows[nbytes]

    def memory(self, size: int, dtype: Any) -> np.ndarray:
        """This rank's memory behind such a window, (size,): there ``rsap`` need not copy."""
        whole = np.frombuffer(self.window(size * np.dtype(dtype).itemsize), np.uint8)
        return whole.view(dtype)

    def forget(self) -> None:
        """Give back windows and scratch; all ranks must. Its memory no longer exists."""
        for window in self._windows.values():
            window.Free()
        self._windows.clear()
        self._scratch.clear()

    def free(self) -> None:
        """Give back the communicators too; all ranks must."""
        self.forget()
        self.row.Free()
        self.column.Free()


def arrange(shape: grids.Shape, world: Any = None) -> Grid:
    """Put all ranks of a communicator of MPI's, or all that there are, into a grid; all must.

    Raises:
        UserError: the grid has another number of ranks.
    """
    world = MPI.COMM_WORLD if world is None else world
    grids.check(shape, world.size)
    row, column = divmod(world.rank, shape[1])
    return Grid(shape, world, world.Split(row, column), world.Split(column, row))


def plain(grid: Grid, array: np.ndarray, mean: bool = False) -> None:
    """MPI's own all-reduce. It has no shares, and so the whole array is averaged."""
    flat = array.reshape(-1)
    grid.world.Allreduce(MPI.IN_PLACE, flat)
    if mean:
        flat *= 1 / grid.world.size


def ring(grid: Grid, array: np.ndarray, mean: bool = False) -> None:
    """Each rank sends to its right-hand neighbour only: n - 1 parts, and then n - 1 sums.

    The array has n parts. In the first round each part travels once around the ring, and every
    rank that it comes to adds its own; after n - 1 steps rank r has the sum of part r + 1. In the
    second round the sums travel on, until all have them. No rank sends more than 2 (n - 1) / n
    times the array, whatever n is, but there are 2 (n - 1) steps to wait for.
    """
    flat, world, ranks = array.reshape(-1), grid.world, grid.world.size
    parts = [flat[cut] for cut in grids.cuts(flat.size, ranks)]
    right, left = (world.rank + 1) % ranks, (world.rank - 1) % ranks
    arriving = grid.scratch(parts[0].size, flat.dtype)
    for step in range(ranks - 1):
        sent, own = (parts[(world.rank - step - later) % ranks] for later in (0, 1))
        came = arriving[: own.size]
        world.Sendrecv(sent, right, recvbuf=came, source=left)
        own += came
    if mean:
        parts[right] *= 1 / ranks
    for step in range(ranks - 1):
        sent, got = (parts[(right - step - later) % ranks] for later in (0, 1))
        world.Sendrecv(sent, right, recvbuf=got, source=left)


def rsaa(grid: Grid, array: np.ndarray, mean: bool = False) -> None:
    """Reduce-scatter in rows, all-reduce in columns, all-gather in rows (Mikami et al. 2018).

    A row's reduce-scatter leaves each of its c ranks with one c-th of the row's sum; the ranks
    below each other, which have the same c-th of every row, add those up; and the row puts them
    together again. Between rows goes a c-th of the array, and r + c steps take the place of r c.
    """
    flat = array.reshape(-1)
    share, places = _share(grid, flat, mean)
    grid.row.Allgatherv(share, [flat, [cut.stop - cut.start for cut in places]])


def rsap(grid: Grid, array: np.ndarray, mean: bool = False) -> None:
    """As :func:`rsaa`, but each rank Puts its share into the others' memory (Hanawa, Tamura).

    One-sided: all ranks of the row synchronise twice, once when no rank needs the summands any
    more, and once when every Put has arrived. Others can Put into nothing but a window: an array
    that is not ``grid.memory(...)`` is copied whole.
    """
    flat = array.reshape(-1)
    if flat.size == 0:
        return
    share, places = _share(grid, flat, mean)
    window, own = grid.window(flat.nbytes), places[grid.row.rank]
    there = grid.memory(flat.size, flat.dtype)
    window.Fence(MPI.MODE_NOPRECEDE)
    for other in range(grid.row.size):
        if other != grid.row.rank and share.size:
            window.Put(share, other, own.start * flat.itemsize)
    window.Fence(MPI.MODE_NOSUCCEED)
    flat[own] = share
    if there.ctypes.data != flat.ctypes.data:
        for place in places:
            if place != own:
                flat[place] = there[place]


METHODS: dict[str, Method] = dict(zip(grids.NAMES, (plain, ring, rsaa, rsap), strict=True))


def _share(grid: Grid, flat: np.ndarray, divide: bool) -> tuple[np.ndarray, list[slice]]:
    """This rank's share of the sum over all, and the places of its row's shares."""
    places = grids.cuts(flat.size, grid.row.size)
    lengths = [cut.stop - cut.start for cut in places]
    share = grid.scratch(lengths[grid.row.rank], flat.dtype)
    grid.row.Reduce_scatter(flat, share, lengths)
    grid.column.Allreduce(MPI.IN_PLACE, share)
    if divide:
        share *= 1 / grid.world.size
    return share, places
