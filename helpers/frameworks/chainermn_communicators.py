"""Two communicators for ChainerMN: RSAA and RSAP over a grid of ranks. Importing joins MPI."""

from __future__ import annotations

import atexit
from itertools import groupby
from typing import Any

import numpy as np
from chainermn.communicators import _memory_utility
from chainermn.communicators.naive_communicator import NaiveCommunicator

from helpers.all_reduce import grids, methods
from helpers.errors import UnsupportedError


def over_grid(communicator: Any, all_reduce: str) -> Any:
    """A communicator of the same ranks over a grid, ``rsap 2x4``; of one rank, the given one.

    Raises:
        UserError: no such algorithm, or a grid of another number of ranks.
        UnsupportedError: the gradients are on GPUs.
    """
    name, shape = grids.named(all_reduce, communicator.size, ("auto", "naive", *grids.OVER_GRIDS))
    if not isinstance(communicator, NaiveCommunicator):
        raise UnsupportedError(f"all_reduce {name} sums in the host's memory: give auto on GPUs")
    if communicator.size == 1:
        return communicator
    return OverGrid(communicator.mpi_comm, name, shape)


class OverGrid(NaiveCommunicator):
    """Average all gradients at once over a grid; float16 is added in float32, as by ``naive``."""

    def __init__(self, mpi_comm: Any, name: str, shape: grids.Shape) -> None:
        super().__init__(mpi_comm)
        self.name, self.grid = name, methods.arrange(shape, mpi_comm)
        self.by = f"{name} {grids.in_words(shape)}"  # what a record says
        atexit.register(self.grid.free)  # before MPI ends, which would say that they are left

    def multi_node_mean_grad(self, model: Any, zero_fill: bool = False) -> None:
        """In place of each gradient its mean over all ranks."""
        parameters = _memory_utility.extract_params_set_grad(model, zero_fill)
        for each in parameters:
            if each.grad is None:  # only with zero_fill
                each.grad = np.zeros_like(each.data)
        types = sorted(parameters, key=lambda each: str(each.grad.dtype))  # the rest as it was
        for _, group in groupby(types, key=lambda each: str(each.grad.dtype)):
            gradients = [each.grad for each in group]
            dtype = np.promote_types(gradients[0].dtype, np.float32)
            ends = np.cumsum([each.size for each in gradients])
            buffer = self.grid.memory(int(ends[-1]), dtype)
            places = np.split(buffer, ends[:-1])
            for place, each in zip(places, gradients, strict=True):
                place[:] = each.reshape(-1)
            methods.METHODS[self.name](self.grid, buffer, mean=True)
            for place, each in zip(places, gradients, strict=True):
                each[...] = place.reshape(each.shape)
