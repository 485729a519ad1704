"""The split: patients whole, shares right, and the same everywhere."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from data_prep_tools import command, make_folder
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep import DataError
from data_prep.split import split_groups


@given(
    st.lists(st.integers(1, 200), min_size=40, max_size=300).filter(lambda p: len(set(p)) > 20),
    st.integers(0, 2**32),
    st.randoms(use_true_random=False),
)
@settings(max_examples=50)
def test_invariants(patients: list[int], seed: int, random: Random) -> None:
    found = split_groups(patients, seed=seed)
    assert list(found) == ["train", "valid", "test"]
    members = {split: {patients[at] for at in rows} for split, rows in found.items()}
    assert sum(map(len, members.values())) == len(set(patients))  # nobody twice
    images = sorted(at for rows in found.values() for at in rows.tolist())
    assert images == [*range(len(patients))]  # nothing lost, nothing twice
    for split, share in zip(("train", "valid", "test"), (0.7, 0.1, 0.2), strict=True):
        assert abs(len(members[split]) - share * len(set(patients))) <= 1
    shuffled = random.sample(patients, len(patients))
    again = split_groups(shuffled, seed=seed)
    assert {split: {shuffled[at] for at in rows} for split, rows in again.items()} == members


def test_the_split_never_changes() -> None:
    # Written down once: a new library version that gives another split fails here.
    split = split_groups(range(1, 21), seed=0)
    assert split["valid"].tolist() == [5, 6] and split["test"].tolist() == [2, 3, 4, 14]
    assert split_groups(range(1, 21), seed=1)["test"].tolist() != split["test"].tolist()


def test_an_empty_split_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no images left in the test split: 2 groups"):
        split_groups([1, 2])
    done = command("verify", "--quick", make_folder(tmp_path / "set", patients=3))
    assert done.returncode == 1 and "no images left in the valid split" in done.stdout
    with pytest.raises(DataError, match=r"no images left in the .* 7 is the group of all images"):
        split_groups([7] * 9)


@pytest.mark.parametrize("fractions", [(0.7, 0.3), (0.7, 0.1, 0.1), (1.2, -0.3, 0.1)])
def test_fractions_must_add_up(fractions: tuple[float, ...]) -> None:
    with pytest.raises(DataError, match="must be three"):
        split_groups(range(50), fractions=fractions)
