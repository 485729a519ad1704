"""Which of several failures was the first, and who waits for whom."""

import os
from pathlib import Path

import pytest

from helpers.launch import causes, letters

HOSTS = ("a", "a", "b", "b")


def wrote(folder: Path, kind: str, rank: int, after: float, **said: object) -> None:
    path = folder / f"{kind}-{rank}"
    letters.say(path, {"rank": rank, "host": HOSTS[rank], **said})
    os.utime(path, (1_000_000 + after, 1_000_000 + after))


def test_nothing_went_wrong(tmp_path: Path) -> None:
    assert causes.earliest(tmp_path) is None


def test_the_earliest_error_counts(tmp_path: Path) -> None:
    wrote(tmp_path, "error", 0, 0.5, said="RuntimeError: Connection closed by peer")
    wrote(tmp_path, "error", 3, 0.4, said="ValueError: no such file")
    wrote(tmp_path, "died", 3, 0.45, status=1)
    assert causes.earliest(tmp_path) == "rank 3 on b: ValueError: no such file"


@pytest.mark.parametrize(
    ("status", "said"),
    [(-9, "killed (signal 9; out of memory?)"), (-11, "killed (signal 11)")],
)
def test_one_that_was_killed_counts_before_those_that_noticed(
    status: int, said: str, tmp_path: Path
) -> None:
    wrote(tmp_path, "error", 0, 0.1, said="RuntimeError: Connection closed by peer")
    wrote(tmp_path, "died", 2, 0.2, status=status)
    assert causes.earliest(tmp_path) == f"rank 2 on b: {said}"


def test_one_that_was_killed_long_after_an_error_is_not_its_cause(tmp_path: Path) -> None:
    wrote(tmp_path, "error", 0, 0.0, said="ValueError: first")
    wrote(tmp_path, "died", 2, 5.0, status=-9)
    assert causes.earliest(tmp_path) == "rank 0 on a: ValueError: first"


def test_who_has_not_answered_is_waited_for() -> None:
    assert causes.waiting([0, 1, 2], {}, HOSTS) == "ranks 0 to 2 wait for rank 3 on b"
    assert causes.waiting([1], {}, HOSTS[:2]) == "rank 1 waits for rank 0 on a"


def test_who_has_the_fewest_steps_is_waited_for() -> None:
    states = {rank: {"steps": 9 - 5 * (rank == 1), "where": "f, g.py:1"} for rank in range(4)}
    said = "ranks 0, 2, 3 wait for rank 1 on a (in f, g.py:1)"
    assert causes.waiting([], states, HOSTS) == said


def test_who_is_elsewhere_is_waited_for() -> None:
    where = ["all_reduce, c.py:1"] * 3 + ["read, png.py:7"]
    states = {rank: {"steps": 9, "where": at} for rank, at in enumerate(where)}
    assert causes.waiting([], states, HOSTS) == (
        "ranks 0 to 2 wait for rank 3 on b (in read, png.py:7)"
    )
    same = {rank: {"steps": 9, "where": "all_reduce, c.py:1"} for rank in range(4)}
    assert causes.waiting([], same, HOSTS) == (
        "ranks 0 to 3 all wait, or compute (in all_reduce, c.py:1)"
    )
