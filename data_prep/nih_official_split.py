"""Split a catalog by the NIH's official lists, `train_val_list.txt` and `test_list.txt`."""

from __future__ import annotations

import io
import os

import pandas as pd

from data_prep.errors import DataError
from data_prep.files import MAX_TEXT_BYTES, read_limited
from data_prep.split import split_by_patient

TRAIN_VALID_FILE = "train_val_list.txt"
TEST_FILE = "test_list.txt"


def official_split(
    catalog: pd.DataFrame,
    train_valid: str | os.PathLike[str],
    test: str | os.PathLike[str],
    *,
    seed: int = 0,
    valid: float = 0.125,
) -> dict[str, pd.DataFrame]:
    """Split a catalog by the NIH's lists; the NIH publishes no validation part.

    Args:
        catalog: see `read_catalog`; the lists may name images that it lacks.
        train_valid: the list of training images.
        test: the list of test images.
        seed: seed of the choice of validation patients, as in `split_by_patient`.
        valid: share of the patients of `train_valid` that goes into validation (an eighth, as 70 to
            10).

    Returns:
        The catalogs `train`, `valid` and `test`.

    Raises:
        DataError: a list is missing or empty, an image is in both lists or in none, a patient is in
            both, or a part has no images.
    """
    train_names, test_names = _read_list(train_valid), _read_list(test)
    both = train_names & test_names
    if both:
        raise DataError(f"{test}: {min(both)} is also in {train_valid}; remove it from one list")
    in_test = catalog["image"].isin(test_names)
    neither = ~in_test & ~catalog["image"].isin(train_names)
    if neither.any():
        raise DataError(
            f"{neither.sum():,} images are in neither list, the first is"
            f" {catalog['image'][neither].iloc[0]}; {train_valid} and {test} must name all"
        )
    shared = set(catalog["patient"][in_test]) & set(catalog["patient"][~in_test])
    if shared:
        raise DataError(f"patient {min(shared)} is in both {train_valid} and {test}; use one list")
    rows = catalog[in_test].reset_index(drop=True)
    if rows.empty or in_test.all():
        part = "test" if rows.empty else "train"
        raise DataError(f"no images left in the {part} part: the lists name none of the catalog's")
    inner = split_by_patient(
        catalog[~in_test], seed=seed, parts=(1.0 - valid, valid, 0.0), may_be_empty=("test",)
    )
    return {"train": inner["train"], "valid": inner["valid"], "test": rows}


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
