"""ChainerMN's communicators over grids of ranks: their gradients are ``naive``'s.

Runs in the chainer environment: ``.venvs/chainer/bin/python -m pytest`` with this file.
"""

from types import SimpleNamespace

import chainermn
import pytest
import ranks_tools
from chainermn.communicators.naive_communicator import NaiveCommunicator

from helpers.all_reduce import grids
from helpers.errors import UnsupportedError, UserError
from helpers.frameworks.chainermn_communicators import over_grid

RANKS = 6


class Naive(NaiveCommunicator):
    """A communicator of so many ranks, without MPI."""

    size = RANKS

    def __init__(self) -> None:
        pass


def test_gradients_are_those_of_naive() -> None:
    """Integers bit for bit, on every grid and rank."""
    found = ranks_tools.under_mpiexec(RANKS, "chainermn_grids.py")
    assert len(found) == 2 * len(grids.of(RANKS))
    assert {text: wrong for text, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rsap 2x4", "a grid of 2x4 ranks does not match 6 ranks: give one of 6x1, 3x2, 2x3, 1x6$"),
        ("two_dimensional", "all-reduce by 'two_dimensional': give auto, naive, rsaa, rsap, and"),
        ("naive 2x3", "all-reduce by 'naive 2x3': give auto"),
        ("ring", "all-reduce by 'ring': give auto"),
        ("rsaa 2by3", "all-reduce by 'rsaa 2by3': give"),
        (None, "all-reduce by None: give auto"),
    ],
)
def test_what_cannot_be_had_is_one_line(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        over_grid(Naive(), text)
    assert "\n" not in str(caught.value)


def test_on_gpus_it_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="rsap sums in the host's memory"):
        over_grid(SimpleNamespace(size=RANKS), "rsap")


def test_a_rank_that_is_alone_keeps_its_communicator() -> None:
    alone = chainermn.create_communicator("naive")
    assert alone.size == 1 and over_grid(alone, "rsap") is alone
