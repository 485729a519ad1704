"""What a test has ranks do: the gradients of each communicator, against those of ``naive``."""

import json
from collections.abc import Callable
from itertools import chain
from typing import Any

import chainer
import chainermn
import numpy as np

from helpers.all_reduce import grids
from helpers.frameworks import chainermn_communicators

SHAPES = {"a": (3, 5), "b": (7,), "c": (1,), "d": (0,), "e": (31, 3)}
TYPES = {"e": np.float64}


def link(draw: Callable[[tuple[int, ...]], np.ndarray], dtype: Any = None) -> chainer.Link:
    """Parameters of two types with gradients; one is not contiguous."""
    found = chainer.Link()
    with found.init_scope():
        for name, shape in SHAPES.items():
            of_type = dtype or TYPES.get(name, np.float32)
            setattr(found, name, chainer.Parameter(np.zeros(shape, of_type)))
            getattr(found, name).grad = draw(shape).astype(of_type)
    found.a.grad = np.asfortranarray(found.a.grad)
    return found


def reduced(communicator: Any, given: chainer.Link) -> dict[str, np.ndarray]:
    for each in given.params():
        # naive would drop the mean of one that is not contiguous
        if isinstance(communicator, chainermn_communicators.OverGrid) or each.grad.size == 0:
            continue
        each.grad = np.ascontiguousarray(each.grad)
    communicator.multi_node_mean_grad(given)
    return {each.name: each.grad for each in given.params()}


def differences() -> dict[str, list[str]]:
    """What each communicator has otherwise than ``naive``, by its name: of integers, bit for bit.

    Floats and their order are the all-reduce's own (``all_reduce_ranks``).
    """
    naive = chainermn.create_communicator("naive")
    rank, size = naive.rank, naive.size
    whole = whole_of(rank)
    found: dict[str, list[str]] = {}

    for text in (f"{way} {grids.in_words(s)}" for way in grids.OVER_GRIDS for s in grids.of(size)):
        wrong = found[text] = []
        communicator = chainermn_communicators.over_grid(naive, text)
        if communicator.by != text:
            wrong.append(f"it is {communicator.by}")
        ours, theirs = (reduced(each, link(whole)) for each in (communicator, naive))
        for name, array in ours.items():
            if array.dtype != theirs[name].dtype or not np.array_equal(array, theirs[name]):
                wrong.append(f"integers of {name}")
        half = reduced(communicator, link(whole, np.float16))
        exact = np.mean([whole_of(other)(SHAPES["e"]) for other in range(size)], 0)
        if half["e"].dtype != np.float16 or (np.abs(half["e"] - exact) > 2.0**-10 * 1000).any():
            wrong.append("float16")
        wrong += missing_ones(communicator)
    gathered = naive.mpi_comm.allgather(found)
    return {text: sorted({*chain(*(each[text] for each in gathered))}) for text in found}


def whole_of(rank: int) -> Callable[[tuple[int, ...]], np.ndarray]:
    return lambda shape: np.random.default_rng(rank).integers(-1000, 1000, shape)


def missing_ones(communicator: Any) -> list[str]:
    """A parameter without a gradient is left out, or filled with zeros."""
    wrong = []
    for fill in (False, True):
        given = link(np.ones)
        if communicator.rank == 0 or not fill:
            given.b.grad = None
        communicator.multi_node_mean_grad(given, zero_fill=fill)
        if fill and not np.allclose(given.b.grad, (communicator.size - 1) / communicator.size):
            wrong.append("a gradient that only rank 0 lacks")
        if not fill and given.b.grad is not None:
            wrong.append("a gradient that nobody has")
    return wrong


if __name__ == "__main__":
    of_all = differences()
    if chainermn.create_communicator("naive").rank == 0:
        print(json.dumps(of_all))
