"""Measure how fast a loader delivers, and choose its number of workers on this machine.

A worker count that suits one machine starves another: too few workers leave the devices waiting,
too many fight each other, and the training process, for the same cores.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from data_prep.files import core_count

if TYPE_CHECKING:
    import pandas as pd

Batches = Callable[[int], Iterator[Any]]
"""With so many workers, one process's ready batches, without end."""

ENOUGH = 0.05
"""More workers are worth having while each doubling delivers this share more."""


def images_per_second(
    batches: Batches, workers: int, images: int, *, seconds: float = 1.0
) -> float:
    """Images/s from a loader with ``workers`` workers, ``images`` a batch and nothing behind it.

    The clock starts at a batch that arrives when what the workers had read ahead is used up, so
    that the number is what they can keep up. It stops after ``seconds`` or the batch under way.
    """
    with under_way(batches, workers) as stream:
        start = time.perf_counter()
        count = delivered(stream, seconds)
        return count * images / (time.perf_counter() - start)


@contextmanager
def under_way(batches: Batches, workers: int) -> Iterator[Iterator[Any]]:
    """A loader's batches from where what its workers had read ahead is used up; it ends with it."""
    with closing(batches(workers)) as stream:  # type: ignore[type-var]
        for _ in range(2 + 2 * workers):
            next(stream)
        yield stream


def delivered(stream: Iterator[Any], seconds: float) -> int:
    """How many batches come in that time, with the one under way at its end."""
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        next(stream)
        count += 1
    return count


def usable_cores() -> int:
    """CPU cores that this process may use, as data-prep counts them."""
    return core_count()


def candidates(cores: int | None = None) -> list[int]:
    """The worker counts worth trying: 0 (the training process itself), 1, 2, 4 ... 2 x cores."""
    most = 2 * (cores or usable_cores())
    counts = [0, 1]
    while counts[-1] * 2 <= most:
        counts.append(counts[-1] * 2)
    return counts


def measure_workers(
    batches: Batches, images: int, counts: list[int] | None = None, *, seconds: float = 1.0
) -> pd.DataFrame:
    """How fast a loader is with several numbers of workers; stops when more do not help.

    Args:
        counts: the numbers to try, in this order; by default :func:`candidates`.

    Returns:
        Columns ``workers`` and ``images/s``.
    """
    import pandas as pd

    rows: list[tuple[int, float]] = []
    for count in counts or candidates():
        rows.append((count, images_per_second(batches, count, images, seconds=seconds)))
        if len(rows) > 3 and all(
            now < (1 + ENOUGH) * before
            for (_, before), (_, now) in zip(rows[-3:-1], rows[-2:], strict=True)
        ):
            break
    return pd.DataFrame(rows, columns=["workers", "images/s"])


def best_workers(table: pd.DataFrame) -> int:
    """The smallest worker count that delivers nearly what the fastest does."""
    enough = table[table["images/s"] >= (1 - ENOUGH) * table["images/s"].max()]
    return int(enough["workers"].min())


def choose_workers(batches: Batches, images: int) -> int:
    """The number of workers for this machine, by a measurement of some seconds, printed."""
    table = measure_workers(batches, images)
    best = best_workers(table)
    speeds = ", ".join(f"{row.workers}: {row[2]:,.0f}" for row in table.itertuples())
    print(f"{best} loader workers; images/s by number of workers: {speeds}")
    return best
