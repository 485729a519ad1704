"""Exchange values between the ranks of a run through files, without a framework's collectives.

Every rank runs the same notebook, so all make the same calls of this module in the same order.
They wait here without a device: a rank may download or compile for longer than a collective's
timeout. With one process there is nothing to wait for.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeVar

import numpy as np

from helpers import network
from helpers.errors import LoaderError
from helpers.frameworks import rank_info
from helpers.launch import json_values, run_files

Value = TypeVar("Value")
WAIT_SECONDS = 0.005

_numbers = count()


def exchange(value: Value) -> list[Value]:
    """Every rank's value, in their order, in each of them."""
    here = rank_info.here()
    if here is None:
        return [value]
    name = f"call-{next(_numbers)}"
    said = {"value": json_values.encode(value)}  # None is no file yet
    run_files.write(here.folder / f"{name}-{here.rank}", said)
    found: dict[int, Any] = {here.rank: value}
    while len(found) < here.ranks:
        for rank in set(range(here.ranks)) - set(found):
            if (said := run_files.read(here.folder / f"{name}-{rank}")) is not None:
                found[rank] = json_values.decode(said["value"])
        if len(found) < here.ranks:
            time.sleep(WAIT_SECONDS)
    return [found[rank] for rank in range(here.ranks)]


def of_first(value: Value) -> Value:
    """Rank 0's value, in every rank."""
    return exchange(value)[0]


def in_order(own: np.ndarray, total: int) -> np.ndarray:
    """The rows of all ranks in their order, in every rank.

    Args:
        own: rows of this rank, which has every n-th; more of them fill up its last batch.
        total: how many rows all have together.

    Raises:
        LoaderError: the rank has fewer rows than are its own.
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
