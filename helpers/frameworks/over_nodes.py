"""What processes of several nodes know together: rows that each has a part of.

:class:`AllReduce` is for all frameworks, the rest for those with one process a node (TensorFlow,
MXNet), which joins all its devices itself. That is made of one thing that a framework brings,
``gather(own)``: from each process's own array to those of all, in the order of their ranks, in
every process.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from helpers.errors import LoaderError
from helpers.frameworks.place import Place

Gather = Callable[[np.ndarray], np.ndarray]
"""From an own array, of the same shape in each process, to (processes, ...)."""


class AllReduce(NamedTuple):
    """What ``gradient_all_reduce(replica, devices)`` of a ``<module>_ranks.py`` gives.

    ``once`` reduces as many figures as the model has gradients, in the framework's own way, and
    returns what its ``completion`` can wait for. All processes have to call it equally often.
    """

    once: Callable[[], Any]
    bytes: int
    """Of the gradients of one device."""
    by: str
    """What the framework calls the way: ``nccl``, ``gloo``."""


def meet(here: Place, what: str, seconds: float) -> None:
    """Wait for all ranks, each of which is about to join the others by its framework's means.

    Those wait without an end, or go on alone.

    Args:
        here: this process's place.
        what: they do; a word that stands in a file's name.
        seconds: for how long.

    Raises:
        RuntimeError: some have not come; the message names them.
    """
    (here.folder / f"{what}-{here.rank}").touch()
    until = time.monotonic() + seconds
    while missing := [
        rank for rank in range(here.ranks) if not (here.folder / f"{what}-{rank}").exists()
    ]:
        if time.monotonic() > until:
            raise RuntimeError(
                f"not all {here.ranks} ranks came to {what} in {seconds:.0f} s; missing: rank "
                f"{', '.join(map(str, missing))}"
            )
        time.sleep(0.02)


def in_order(here: Place | None, gather: Gather, own: np.ndarray, total: int) -> np.ndarray:
    """The rows of all processes in their order, in every process.

    Args:
        here: this process's place; None where it is the only one.
        gather: the framework's.
        own: rows of this process, which has every n-th; more of them fill up its last batch.
        total: how many rows all have together.

    Returns:
        Rows (total, ...), or what there is of them where one process has all.

    Raises:
        LoaderError: the process has fewer rows than are its own.
    """
    if here is None or here.ranks == 1:
        return own[:total]
    rows = len(range(here.rank, total, here.ranks))
    if len(own) < rows:
        raise LoaderError(f"the loader gave {len(own)} of this process's {rows} images")
    most = -(-total // here.ranks)  # some have one row fewer
    filled = np.zeros((most, *own.shape[1:]), own.dtype)
    filled[:rows] = own[:rows]
    return np.swapaxes(gather(filled), 0, 1).reshape(-1, *own.shape[1:])[:total]


def table(here: Place, own: np.ndarray) -> np.ndarray:
    """What a sum over all processes makes (processes, ...) of: zeros but for the own row."""
    found = np.zeros((here.ranks, *own.shape), own.dtype)
    found[here.rank] = own
    return found
