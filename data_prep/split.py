"""Split images into train, valid and test parts without a patient in two parts."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from data_prep.errors import DataError, count_text

if TYPE_CHECKING:
    import pandas as pd

PARTS = ("train", "valid", "test")


def split_by_patient(
    catalog: pd.DataFrame, *, seed: int = 0, parts: Sequence[float] = (0.7, 0.1, 0.2)
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

    Returns:
        A table for each of `train`, `valid` and `test`.

    Raises:
        DataError: the fractions are invalid, or a part would have no images.
    """
    chosen = split_groups(catalog["patient"].tolist(), seed=seed, parts=parts)
    return {part: catalog.iloc[rows].reset_index(drop=True) for part, rows in chosen.items()}


def split_groups(
    groups: Sequence[Hashable],
    *,
    seed: int = 0,
    parts: Sequence[float] = (0.7, 0.1, 0.2),
    may_be_empty: Sequence[str] = (),
) -> dict[str, np.ndarray]:
    """Split images by group as `split_by_patient` does; `groups` is the group of each image.

    Parts in `may_be_empty` may have no images. Returns the indices of each part, ascending int64.
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
            fix = "use more groups or other shares"
            if len(members) == 1:
                fix = (
                    f"{members[0]} is the group of all images, and no group is in two parts."
                    " Add groups, use smaller groups, or assign the images to parts yourself"
                )
            count = count_text(members, "group (patient)", "groups (patients)")
            raise DataError(
                f"no images left in the {part} part: {count} split"
                f" {'/'.join(f'{share:g}' for share in shares)}; {fix}"
            )
    return split
