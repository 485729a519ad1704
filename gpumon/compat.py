"""This module provides functions of later Python versions to Python 3.9."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")

if TYPE_CHECKING:
    from builtins import zip as zip_strict
    from itertools import pairwise as pairwise
elif sys.version_info >= (3, 10):
    from functools import partial
    from itertools import pairwise as pairwise

    zip_strict = partial(zip, strict=True)
else:
    from itertools import zip_longest

    def pairwise(values: Iterable[T]) -> Iterator[tuple[T, T]]:
        """Each value with the one after it."""
        rest = iter(values)
        for before in rest:
            for after in rest:
                yield before, after
                before = after

    def zip_strict(*columns: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        """Like ``zip``; ValueError where the columns are not equally long."""
        nothing = object()
        for row in zip_longest(*columns, fillvalue=nothing):
            if any(value is nothing for value in row):
                raise ValueError("columns of different lengths")
            yield row
