"""The methods to all-reduce, over real ranks: every grid, odd sizes, integers and floats."""

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import ranks_tools

from helpers import paths
from helpers.all_reduce import grids, measure
from helpers.errors import UserError

RANKS = (2, 3, 4, 6, 8)


@cache
def found(ranks: int) -> Any:
    """What so many ranks say."""
    return ranks_tools.under_mpiexec(ranks, "all_reduce_ranks.py")


@pytest.mark.parametrize("ranks", RANKS)
def test_every_method_over_every_grid_is_the_sum_and_the_mean(ranks: int) -> None:
    wrong = found(ranks)["wrong"]
    over = len(grids.of(ranks))
    assert len(wrong) == 2 + 2 * over + over, "not all were tried"
    assert {key: each for key, each in wrong.items() if each} == {}


def test_what_is_wrong_is_seen() -> None:
    planted = found(4)["planted"]
    assert len(planted) == 4
    assert {name: each for name, each in planted.items() if not each} == {}
    assert any("not the same bits" in each for each in planted["one rank has another bit"])


def test_times_are_measured_of_every_method_over_every_grid() -> None:
    rows = measure.run(2, [4, 8], 2, 0.0)
    keys = {(row["method"], row["rows"], row["bytes"], row["round"]) for row in rows}
    assert len(keys) == len(rows)
    assert Counter(key[0] for key in keys) == {"plain": 4, "ring": 4, "rsaa": 8, "rsap": 8}
    assert all(row["seconds"] > 0 for row in rows)


def test_ranks_that_fail_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails = tmp_path / "mpiexec"
    fails.write_text("#!/bin/sh\necho one >&2\necho no such host >&2\nexit 3\n")
    fails.chmod(0o755)
    monkeypatch.setattr(paths, "MPIEXEC", fails)
    with pytest.raises(UserError) as caught:
        measure.run(2, [4], 1, 0.0)
    assert str(caught.value) == "mpiexec with 2 ranks failed (3): no such host"


def test_grids_are_named_and_cut() -> None:
    assert grids.of(6) == [(6, 1), (3, 2), (2, 3), (1, 6)]
    assert [grids.squarest(ranks) for ranks in (1, 2, 7, 8, 9, 12)] == [
        (1, 1), (1, 2), (1, 7), (2, 4), (3, 3), (3, 4),
    ]  # fmt: skip
    assert grids.named("rsap 4x2", 8) == ("rsap", (4, 2))
    assert grids.named("ring", 8) == ("ring", (2, 4))
    assert grids.cuts(7, 3) == [slice(0, 3), slice(3, 5), slice(5, 7)]
    assert grids.cuts(1, 3) == [slice(0, 1), slice(1, 1), slice(1, 1)]


@pytest.mark.parametrize("text", ["rsax", "", "ring 2x4", "rsap 2 4", "rsap 2x4x1", "None"])
def test_no_such_method_is_one_line(text: str) -> None:
    with pytest.raises(UserError, match="give plain, ring, rsaa, rsap") as caught:
        grids.named(text, 8)
    assert "\n" not in str(caught.value)
