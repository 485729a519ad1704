"""Exchange values between the ranks of a run, outside a framework's collectives.

Every rank runs the same notebook, so all make the same calls of this module in the same order.
They wait here without a device: a rank may download or compile for longer than a collective's
timeout. With one process there is nothing to wait for.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from helpers.frameworks import rank_info

Value = TypeVar("Value")


def exchange(value: Value) -> list[Value]:
    """Every rank's value, in their order, in each of them."""
    here = rank_info.here()
    return [value] if here is None else here.gather(value)


def of_first(value: Value) -> Value:
    """Rank 0's value, in every rank."""
    return exchange(value)[0]


@contextmanager
def first_rank_first() -> Iterator[None]:
    """Rank 0 executes the block first, so that the others find what it downloads."""
    first = (here := rank_info.here()) is None or here.rank == 0
    if not first:
        exchange(None)
    yield
    if first:
        exchange(None)
