"""Collectives that several framework modules share: an all-reduce, and a sum that gathers rows."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from helpers.frameworks.rank_info import Place


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


def table(here: Place, own: np.ndarray) -> np.ndarray:
    """What a sum over all processes makes (processes, ...) of: zeros but for the own row."""
    found = np.zeros((here.ranks, *own.shape), own.dtype)
    found[here.rank] = own
    return found
