"""Where a process may run beside another, by the lists that Linux writes."""

import os
from pathlib import Path

import pytest

from helpers.training import cores


@pytest.mark.parametrize(
    ("text", "expected"), [("0\n", {0}), ("0,4\n", {0, 4}), ("0-2,8\n", {0, 1, 2, 8})]
)
def test_lists_are_read_as_the_kernel_writes_them(text: str, expected: set[int]) -> None:
    assert cores.listed(text) == expected


def test_siblings_are_the_others_of_the_list(tmp_path: Path) -> None:
    (tmp_path / "cpu4").write_text("0,4\n")
    assert cores.siblings(4, f"{tmp_path}/cpu{{}}") == {0}
    assert cores.siblings(5, f"{tmp_path}/cpu{{}}") == set()


def test_this_machines_own_lists_are_read() -> None:
    """Each is the other's sibling."""
    for core in os.sched_getaffinity(0):
        assert all(core in cores.siblings(other) for other in cores.siblings(core))


def test_a_place_that_is_not_there_is_left_out() -> None:
    assert cores.beside(0, {0, 1, 4, 5}, {4}) == {
        cores.SAME: {0}, cores.SIBLING: {4}, cores.OTHERS: {1, 5},
    }  # fmt: skip
    assert cores.beside(0, {0, 1}, set()) == {cores.SAME: {0}, cores.OTHERS: {1}}
    assert cores.beside(0, {0}, {4}) == {cores.SAME: {0}}, "the sibling may not be used"
