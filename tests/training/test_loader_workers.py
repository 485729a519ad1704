"""The numbers of loader workers that are worth trying."""

from helpers.training import loader_workers


def test_candidates_end_at_twice_the_cores() -> None:
    assert loader_workers.candidates(2) == [0, 1, 2, 4]
    assert loader_workers.candidates(24) == [0, 1, 2, 4, 8, 16, 32]
