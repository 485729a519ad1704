"""Train, valid and test parts with no patient in two of them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from data_prep.errors import DataError

PARTS = ("train", "valid", "test")


def split_by_patient(
    catalog: pd.DataFrame,
    *,
    seed: int = 0,
    parts: Sequence[float] = (0.7, 0.1, 0.2),
    may_be_empty: Sequence[str] = (),
) -> dict[str, pd.DataFrame]:
    """Split a catalog into `train`, `valid` and `test`, whole patients at a time.

    The same seed gives the same parts on every machine, with every NumPy version and in whatever
    order the rows come: patients are ordered by a hash of seed and patient number, not by a random
    generator, whose stream a new version may change. Rows keep their order within each part.

    Args:
        catalog: see `read_catalog`.
        seed: of the order of the patients.
        parts: shares of the patients, which add up to 1. A patient of the NIH's set has between 1
            and 184 images, so the shares of images are only near them.
        may_be_empty: names of parts that may have no images.

    Returns:
        The catalogs `train`, `valid` and `test`.

    Raises:
        DataError: another part would have no images.
    """
    shares = [float(share) for share in parts]
    if len(shares) != len(PARTS) or min(shares) < 0 or not math.isclose(sum(shares), 1.0):
        raise DataError(f"parts are {tuple(parts)}: give three shares, train, valid, test, sum 1")
    patients = sorted(
        {int(patient) for patient in catalog["patient"].unique()},
        key=lambda patient: hashlib.blake2b(f"{seed}/{patient}".encode(), digest_size=16).digest(),
    )
    # Rounding each boundary, not each part, so that the parts always add up to all patients.
    cuts = [round(len(patients) * share) for share in (shares[0], shares[0] + shares[1])]
    chosen = np.split(np.array(patients, dtype=np.int64), cuts)
    split = {
        part: catalog[catalog["patient"].isin(members)].reset_index(drop=True)
        for part, members in zip(PARTS, chosen, strict=True)
    }
    for part, rows in split.items():
        if rows.empty and part not in may_be_empty:
            raise DataError(
                f"no images left in the {part} part: {len(patients)} patients split"
                f" {'/'.join(f'{share:g}' for share in shares)}; use more patients or other shares"
            )
    return split
