"""The MPI ranks as a grid, with the buffers that its all-reduces reuse.

Importing this module joins MPI.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mpi4py import MPI

from helpers.all_reduce import grids


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

    @property
    def ranks(self) -> int:
        return int(self.world.size)

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
