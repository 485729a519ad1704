"""Split images into train, valid and test parts without a patient in two parts.

The split is by a seed, or by the NIH's official lists, `train_val_list.txt` and `test_list.txt`.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
from collections.abc import Hashable, Sequence

import numpy as np
import pandas as pd

from data_prep.errors import DataError
from data_prep.files import MAX_TEXT_BYTES, read_limited

PARTS = ("train", "valid", "test")

TRAIN_VALID_FILE = "train_val_list.txt"
TEST_FILE = "test_list.txt"


def split_by_patient(
    catalog: pd.DataFrame,
    *,
    seed: int = 0,
    parts: Sequence[float] = (0.7, 0.1, 0.2),
    may_be_empty: Sequence[str] = (),
) -> dict[str, pd.DataFrame]:
    """Split a catalog into train, valid and test, with no patient in two parts.

    The same seed gives the same parts on every machine and for every order of the rows. Patients
    are ordered by a hash of seed and patient number, not by a random generator, whose stream a new
    version may change. Rows keep their order within each part.

    Args:
        catalog: a table from `read_catalog`.
        seed: of the split.
        parts: fractions of the patients for train, valid and test. The fractions of the images
            differ, because a patient of the NIH's data set has between 1 and 184 images.
        may_be_empty: names of the parts that may have no images.

    Returns:
        A table for each of `train`, `valid` and `test`.

    Raises:
        DataError: the fractions are invalid, or a part would have no images.
    """
    chosen = split_groups(
        catalog["patient"].tolist(),
        seed=seed,
        parts=parts,
        may_be_empty=may_be_empty,
        unit="patients",
    )
    return {part: catalog.iloc[rows].reset_index(drop=True) for part, rows in chosen.items()}


def split_groups(
    groups: Sequence[Hashable],
    *,
    seed: int = 0,
    parts: Sequence[float] = (0.7, 0.1, 0.2),
    may_be_empty: Sequence[str] = (),
    unit: str = "groups",
) -> dict[str, np.ndarray]:
    """Split images by group as `split_by_patient` does; `groups` is the group of each image.

    Returns the indices of each part, int64 and ascending.
    """
    shares = [float(share) for share in parts]
    if len(shares) != len(PARTS) or min(shares) < 0 or not math.isclose(sum(shares), 1.0):
        raise DataError(
            f"parts are {tuple(parts)}; give three shares (train, valid, test) with the sum 1"
        )
    members = list(dict.fromkeys(groups))
    start = f"{seed}/"
    digests = b"".join(
        hashlib.blake2b(
            f"{start}{member}".encode("utf-8", "surrogateescape"), digest_size=16
        ).digest()
        for member in members
    )
    halves = np.frombuffer(digests, dtype=">u8").reshape(-1, 2)
    order = np.lexsort((halves[:, 1], halves[:, 0]))  # in the order of the bytes
    # Rounding each boundary, not each part, so that the parts always add up to all patients.
    cuts = [round(len(order) * share) for share in (shares[0], shares[0] + shares[1])]
    codes = np.full(len(order), 2, dtype=np.int8)
    codes[order[: cuts[1]]] = 1
    codes[order[: cuts[0]]] = 0
    if len(members) < len(groups):
        place = {member: at for at, member in enumerate(members)}
        codes = codes[[place[group] for group in groups]]
    split = {part: np.flatnonzero(codes == at) for at, part in enumerate(PARTS)}
    for part, rows in split.items():
        if not len(rows) and part not in may_be_empty:
            count, fix = f"{len(order)} {unit}", f"use more {unit} or other shares"
            if len(order) == 1:
                count = f"1 {unit.removesuffix('s')}"
                fix = (
                    f"{members[0]} is the group of all images, and no group is in two parts."
                    f" Add {unit}, use smaller {unit}, or assign the images to parts yourself"
                )
            raise DataError(
                f"no images left in the {part} part: {count} split"
                f" {'/'.join(f'{share:g}' for share in shares)}; {fix}"
            )
    return split


def official_split(
    catalog: pd.DataFrame,
    train_valid: str | os.PathLike[str],
    test: str | os.PathLike[str],
    *,
    seed: int = 0,
    valid: float = 0.125,
) -> dict[str, pd.DataFrame]:
    """Split a catalog by the NIH's official lists.

    The NIH publishes no validation part, so some patients of the training list become one.

    Args:
        catalog: a table from `read_catalog`.
        train_valid: the file `train_val_list.txt`.
        test: the file `test_list.txt`.
        seed: of the choice of validation patients.
        valid: fraction of the patients in `train_valid` that become the validation part.

    Returns:
        A table for each of `train`, `valid` and `test`.

    Raises:
        DataError: a list is missing or empty, an image is in both lists or in neither, a patient is
            in both, or a part has no images.
    """
    parts = official_parts(
        catalog["image"].tolist(),
        catalog["patient"].tolist(),
        train_valid,
        test,
        seed=seed,
        valid=valid,
    )
    return {part: catalog.iloc[rows].reset_index(drop=True) for part, rows in parts.items()}


def official_parts(
    images: Sequence[str],
    patients: Sequence[Hashable],
    train_valid: str | os.PathLike[str],
    test: str | os.PathLike[str],
    *,
    seed: int = 0,
    valid: float = 0.125,
) -> dict[str, np.ndarray]:
    """Split images as `official_split` does; return the indices of each part, ascending."""
    train_names, test_names = _read_list(train_valid), _read_list(test)
    if both := train_names & test_names:
        raise DataError(f"{test}: {min(both)} is also in {train_valid}; remove it from one list")
    known = train_names | test_names
    if neither := [name for name in images if name not in known]:
        raise DataError(
            f"{len(neither):,} images are in neither list, the first is {neither[0]};"
            f" {train_valid} and {test} must name all"
        )
    in_test = np.array([name in test_names for name in images])
    train, held = np.flatnonzero(~in_test), np.flatnonzero(in_test)
    of_train = [patients[at] for at in train.tolist()]
    if shared := set(of_train) & {patients[at] for at in held.tolist()}:
        first = min(shared)  # type: ignore[type-var]
        raise DataError(f"patient {first} is in both {train_valid} and {test}; use one list")
    if not len(train) or not len(held):
        part = "train" if len(held) else "test"
        raise DataError(f"no images left in the {part} part: the lists name none of the catalog's")
    inner = split_groups(
        of_train,
        seed=seed,
        parts=(1.0 - valid, valid, 0.0),
        may_be_empty=("test",),
        unit="patients",
    )
    return {"train": train[inner["train"]], "valid": train[inner["valid"]], "test": held}


def _read_list(file: str | os.PathLike[str]) -> set[str]:
    try:
        text = read_limited(file, MAX_TEXT_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise DataError(
            f"{file}: the list is missing; download it from the NIH's page of the archives"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: cannot be read ({error})") from None
    names = {line.strip() for line in io.StringIO(text, newline=None)} - {""}
    if not names:
        raise DataError(f"{file}: no file names in it; download the list again")
    return names
