"""The split: patients whole, shares right, and the same everywhere."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest
from data_prep_tools import (
    command,
    make_folder,
    of_whole_sets,
    whole_set,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep import DataError, open_reader
from data_prep.split import split_groups


@given(
    st.lists(st.integers(1, 200), min_size=40, max_size=300).filter(lambda p: len(set(p)) > 20),
    st.integers(0, 2**32),
    st.randoms(use_true_random=False),
)
@settings(max_examples=50)
def test_invariants(patients: list[int], seed: int, random: Random) -> None:
    split = split_groups(patients, seed=seed)
    assert list(split) == ["train", "valid", "test"]
    members = {part: {patients[at] for at in rows} for part, rows in split.items()}
    assert sum(map(len, members.values())) == len(set(patients))  # nobody twice
    images = sorted(at for rows in split.values() for at in rows.tolist())
    assert images == [*range(len(patients))]  # nothing lost, nothing twice
    for part, share in zip(("train", "valid", "test"), (0.7, 0.1, 0.2), strict=True):
        assert abs(len(members[part]) - share * len(set(patients))) <= 1
    shuffled = random.sample(patients, len(patients))
    again = split_groups(shuffled, seed=seed)
    assert {part: {shuffled[at] for at in rows} for part, rows in again.items()} == members


def test_the_split_never_changes() -> None:
    # Written down once: a new library version that gives another split fails here.
    patients = [*range(1, 21)]
    split = split_groups(patients, seed=0)
    assert {part: [patients[at] for at in rows] for part, rows in split.items()} == EXPECTED
    assert split_groups(patients, seed=1)["test"].tolist() != split["test"].tolist()


EXPECTED: dict[str, list[int]] = {
    "train": [1, 2, 8, 9, 10, 11, 12, 13, 14, 16, 17, 18, 19, 20],
    "valid": [6, 7],
    "test": [3, 4, 5, 15],
}


@of_whole_sets
def test_the_whole_set(kind: str, tmp_path: Path) -> None:
    reader = open_reader("nih", whole_set(kind, tmp_path), check_images=False)
    groups = np.array(reader.catalog.groups)
    patients = [set(groups[at]) for at in reader.parts(seed=0).values()]
    assert [len(members) for members in patients] == [21564, 3080, 6161]
    assert not patients[0] & patients[1] and not (patients[0] | patients[1]) & patients[2]


def test_an_empty_part_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no images left in the test part: 2 groups"):
        split_groups([1, 2])
    done = command("verify", "--quick", make_folder(tmp_path / "set", patients=3))
    assert done.returncode == 1 and "no images left in the valid part" in done.stdout
    with pytest.raises(DataError, match=r"no images left in the .* 7 is the group of all images"):
        split_groups([7] * 9)


@pytest.mark.parametrize("parts", [(0.7, 0.3), (0.7, 0.1, 0.1), (1.2, -0.3, 0.1)])
def test_parts_must_add_up(parts: tuple[float, ...]) -> None:
    with pytest.raises(DataError, match="three shares"):
        split_groups(range(50), parts=parts)
