"""ChainerMN's communicators over grids of ranks: their gradients are ``naive``'s.

Runs in the chainer environment: ``.venvs/chainer/bin/python -m pytest`` with this file.
"""

import os
from pathlib import Path

import chainermn
import chainermn_grids
import pytest
import ranks_tools

from helpers import paths
from helpers.all_reduce import grids
from helpers.errors import UnsupportedError, UserError
from helpers.frameworks import chainermn as framework
from helpers.frameworks import chainermn_communicators, mpi_ranks
from helpers.launch.failures import RankError

RANKS = 6
CHECK = framework.OWN_PARAMETERS["all_reduce"]
"""Refuses what a notebook's parameters cell names."""


def test_gradients_are_those_of_naive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Integers bit for bit, floats but for the order of additions, on every grid and rank."""
    there = (paths.ROOT, paths.ROOT / "tests" / "kernels")  # where ranks import from
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, there)))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    devices = framework.list_devices("cpu", RANKS)
    each = mpi_ranks.call("ChainerMN", chainermn_grids.differences, devices)
    assert len(each) == RANKS and len(each[0]) == 2 * len(grids.of(RANKS))
    assert {text: wrong for text, wrong in each[0].items() if wrong} == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rsap 2x4", "a grid of 2x4 ranks does not match 6 ranks: give one of 6x1, 3x2, 2x3, 1x6$"),
        ("two_dimensional", "all_reduce is 'two_dimensional': give auto, naive, rsaa, rsap, and"),
        ("naive 2x3", "all_reduce is 'naive 2x3': give auto"),
        ("ring", "all_reduce is 'ring': give auto"),
        ("rsaa 2by3", "all-reduce by 'rsaa 2by3': give"),
        (None, "all_reduce is None: give auto"),
    ],
)
def test_what_cannot_be_had_is_one_line(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        CHECK(text, False, RANKS)
    assert "\n" not in str(caught.value)


def test_a_notebook_refuses_it_before_it_writes_anything(tmp_path: Path) -> None:
    cell = f"""
from pathlib import Path
import chainermn_ranks
chainermn_ranks.names_of(Path({str(tmp_path)!r}), all_reduce="rsap 2x2")
"""
    with pytest.raises(RankError, match=r"^a grid of 2x2 ranks does not match 2 ranks"):
        ranks_tools.run(tmp_path / "ranks", cell, framework="chainermn")
    assert not (tmp_path / "run").exists()


def test_on_gpus_it_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="rsap sums in the host's memory"):
        CHECK("rsap", True, RANKS)


def test_a_rank_that_is_alone_keeps_its_communicator() -> None:
    alone = chainermn.create_communicator("naive")
    assert alone.size == 1 and chainermn_communicators.over_grid(alone, "rsap") is alone
