"""Exchange values between the ranks of a run, outside a framework's collectives.

Every rank runs the same notebook, so all make the same calls of this module in the same order.
They wait here without a device: a rank may download or compile for longer than a collective's
timeout. With one process there is nothing to wait for.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np

from helpers.errors import LoaderError
from helpers.frameworks import rank_info

Value = TypeVar("Value")


def exchange(value: Value) -> list[Value]:
    """Every rank's value, in their order, in each of them."""
    here = rank_info.here()
    return [value] if here is None else here.gather(value)


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
