"""Arrange ranks in rows and columns and divide an array among them, without MPI."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise

from helpers.errors import UserError

NAMES = ("plain", "ring", "rsaa", "rsap")
"""The methods of ``helpers.all_reduce.methods``."""
OVER_GRIDS = ("rsaa", "rsap")
"""Those that need a grid."""

Shape = tuple[int, int]
"""Rows and columns."""


def of(ranks: int) -> list[Shape]:
    """All grids of this number of ranks, from (ranks, 1) to (1, ranks)."""
    return [(ranks // columns, columns) for columns in range(1, ranks + 1) if ranks % columns == 0]


def squarest(ranks: int) -> Shape:
    """The grid with as many rows as columns, or with the fewest columns more than that."""
    rows = next(rows for rows in range(math.isqrt(ranks), 0, -1) if ranks % rows == 0)
    return rows, ranks // rows


def in_words(shape: Shape) -> str:
    """``2x4``: rows, columns."""
    return f"{shape[0]}x{shape[1]}"


def check(shape: Shape, ranks: int) -> None:
    """Refuse a grid of another number of ranks by a UserError."""
    if shape not in of(ranks):
        raise UserError(
            f"a grid of {in_words(shape)} ranks does not match {ranks} ranks: give one of "
            f"{', '.join(map(in_words, of(ranks)))}"
        )


def named(text: str, ranks: int, names: Sequence[str] = NAMES) -> tuple[str, Shape]:
    """A method and its grid, as written: ``ring``, ``rsaa`` (the squarest), ``rsap 2x4``.

    Raises:
        UserError: there is no such algorithm, or the grid does not fit the number of ranks.
    """
    found = re.fullmatch(r"([a-z]+)(?: +(\d{1,6})x(\d{1,6}))?", str(text).strip())
    if found is None or found[1] not in names or (found[2] and found[1] not in OVER_GRIDS):
        raise UserError(
            f"all-reduce by {text!r}: give {', '.join(names)}, and with "
            f'{" or ".join(OVER_GRIDS)} a grid unless the squarest is right, such as "rsap 2x4"'
        )
    if found[2] is None:
        return found[1], squarest(ranks)
    shape = int(found[2]), int(found[3])
    check(shape, ranks)
    return found[1], shape


def cuts(size: int, parts: int) -> list[slice]:
    """Divide an array of ``size`` into parts, in order; the first parts may be longer by one."""
    each, over = divmod(size, parts)
    starts = [part * each + min(part, over) for part in range(parts + 1)]
    return [slice(*ends) for ends in pairwise(starts)]
