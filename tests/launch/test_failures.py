"""Which of several failures was the first, and where ranks hang."""

import os
from pathlib import Path

import pytest

from helpers.launch import failures, run_files

HOSTS = ("a", "a", "b", "b")


def wrote(folder: Path, kind: str, rank: int, after: float, **said: object) -> None:
    path = folder / f"{kind}-{rank}"
    error = {"ename": "ValueError", "evalue": "no such file", "for users": False}
    run_files.write(path, {"rank": rank, "host": HOSTS[rank], **error, **said})
    os.utime(path, (1_000_000 + after, 1_000_000 + after))


def test_nothing_went_wrong(tmp_path: Path) -> None:
    assert failures.earliest(tmp_path) is None


def test_the_earliest_error_counts(tmp_path: Path) -> None:
    wrote(tmp_path, "error", 0, 0.5, said="RuntimeError: Connection closed by peer")
    wrote(tmp_path, "error", 3, 0.4, said="ValueError: no such file")
    wrote(tmp_path, "died", 3, 0.45, status=1)
    assert str(failures.earliest(tmp_path)) == "rank 3 on b: ValueError: no such file"


@pytest.mark.parametrize(
    ("status", "said"),
    [(-9, "killed (signal 9; out of memory?)"), (-11, "killed (signal 11)")],
)
def test_one_that_was_killed_counts_before_those_that_noticed(
    status: int, said: str, tmp_path: Path
) -> None:
    wrote(tmp_path, "error", 0, 0.1, said="RuntimeError: Connection closed by peer")
    wrote(tmp_path, "died", 2, 0.2, status=status)
    assert str(failures.earliest(tmp_path)) == f"rank 2 on b: {said}"


def test_one_that_aborted_after_an_error_may_have_noticed_it(tmp_path: Path) -> None:
    """As JAX's processes do once a partner is gone; before all errors, it is their cause."""
    wrote(tmp_path, "error", 0, 0.1, said="ValueError: no such file")
    wrote(tmp_path, "died", 1, 0.2, status=-6)
    assert str(failures.earliest(tmp_path)) == "rank 0 on a: ValueError: no such file"
    wrote(tmp_path, "died", 2, 0.3, status=-9)
    assert str(failures.earliest(tmp_path)) == "rank 2 on b: killed (signal 9; out of memory?)"
    wrote(tmp_path, "died", 1, 0.0, status=-6)
    (tmp_path / "died-2").unlink()
    assert str(failures.earliest(tmp_path)) == "rank 1 on a: killed (signal 6)"


def test_one_that_was_killed_long_after_an_error_is_not_its_cause(tmp_path: Path) -> None:
    wrote(tmp_path, "error", 0, 0.0, said="ValueError: first")
    wrote(tmp_path, "died", 2, 5.0, status=-9)
    assert str(failures.earliest(tmp_path)) == "rank 0 on a: ValueError: first"


def test_rank_0_says_for_all_what_a_user_can_put_right(tmp_path: Path) -> None:
    """All of them find the same."""
    wrong = {"ename": "UserError", "for users": True}
    wrote(tmp_path, "error", 1, 0.1, said="9 images", evalue="1", **wrong)
    wrote(tmp_path, "error", 0, 0.2, said="8 images", evalue="0", **wrong)
    found = failures.earliest(tmp_path)
    assert found is not None and str(found) == "8 images"
    assert (found.ename, found.evalue) == ("UserError", "0")


def test_it_is_told_where_each_rank_hangs() -> None:
    where = ["all_reduce, c.py:1"] * 3 + ["read, png.py:7"]
    states = {rank: {"steps": 9 - (rank == 3), "where": at} for rank, at in enumerate(where)}
    all_reduce, read = "in all_reduce, c.py:1 after 9 steps", "in read, png.py:7 after 8 steps"
    said = failures.where(states, HOSTS, done=())
    assert said == f"ranks 0 to 2 {all_reduce}; rank 3 on b {read}"
    said = failures.where(states, HOSTS, done=(1,))
    assert said == f"ranks 0, 2 {all_reduce}; rank 1 on a at the end; rank 3 on b {read}"
    assert failures.where({}, HOSTS, done=()) == "ranks 0 to 3 not heard of"
