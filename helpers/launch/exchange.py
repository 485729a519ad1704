"""Exchange values between the ranks of a run through files, without a framework's collectives.

Every rank runs the same notebook, so all make the same calls of this module in the same order.
They wait here without a device: a rank may download or compile for longer than a collective's
timeout. With one process there is nothing to wait for.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import TypeVar

import numpy as np

from helpers import network
from helpers.errors import LoaderError
from helpers.frameworks import rank_info
from helpers.launch import json_values, run_files

Value = TypeVar("Value")

_numbers = count()


def exchange(value: Value) -> list[Value]:
    """Every rank's value, in their order, in each of them."""
    here = rank_info.here()
    if here is None:
        return [value]
    name = f"call-{next(_numbers)}"
    own = {"value": json_values.encode(value)}  # None is no file yet
    run_files.write(here.folder / f"{name}-{here.rank}", own)
    found = run_files.wait_for_all(here.folder, name, here.ranks)
    return [
        value if rank == here.rank else json_values.decode(said["value"])
        for rank, said in enumerate(found)
    ]


def of_first(value: Value) -> Value:
    """Rank 0's value, in every rank."""
    return exchange(value)[0]


def in_order(own: np.ndarray, total: int) -> np.ndarray:
    """The ``total`` rows of all ranks in their order, in every rank.

    A rank has every n-th in ``own``; more of them fill up its last batch.
    """
    here = rank_info.here()
    rank, ranks = (0, 1) if here is None else (here.rank, here.ranks)
    rows = len(range(rank, total, ranks))
    if len(own) < rows:
        raise LoaderError(f"the loader gave {len(own)} of this process's {rows} images")
    found = np.empty((total, *own.shape[1:]), own.dtype)
    for number, part in enumerate(exchange(own[:rows])):
        found[number::ranks] = part
    return found


@contextmanager
def first_rank_first() -> Iterator[None]:
    """Rank 0 carries out the block, and then all others do: what it downloads they find."""
    here = rank_info.here()
    if here is not None and here.rank > 0:
        exchange(None)
    yield
    if here is not None and here.rank == 0:
        exchange(None)


def renew_port() -> None:
    """A port of its own for each process group of PyTorch.

    Its store outlives the group that it was made for, by an unknown time. A second group at the
    same port could find the addresses of the first there.
    """
    if rank_info.here() is not None:
        os.environ["MASTER_PORT"] = str(of_first(network.free_port()))
