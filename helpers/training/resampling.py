"""The bootstrap behind the intervals of both tasks, which draws whole groups of images.

A group's images resemble each other, as a patient's do. All runs draw the same, so that what two
of them come to on the same images can be subtracted draw by draw.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

RESAMPLES = 1000
AT_ONCE = 100
"""Resamples computed together: tens of MB at the NIH's 25,600 test images."""


def draws(groups: int) -> Iterator[np.ndarray]:
    """How often each group is drawn: (groups, up to ``AT_ONCE``), ``RESAMPLES`` in all.

    From the generator's raw numbers, which NumPy promises never to change; what it makes of them
    (``integers``, ``choice``) may differ between versions. Taking the remainder favours no group
    by more than one in 10^14.
    """
    generator = np.random.PCG64(0)
    for first in range(0, RESAMPLES, AT_ONCE):
        count = min(AT_ONCE, RESAMPLES - first)
        chosen = generator.random_raw((count, groups)) % groups
        counts = [np.bincount(row.astype(np.int64), minlength=groups) for row in chosen]
        yield np.stack(counts, axis=1).astype(float)


def interval(resampled: Any) -> tuple[Any, Any]:
    """The ends that hold the middle 95 %, of a series or of each column; draws of NaN are none."""
    return resampled.quantile(0.025), resampled.quantile(0.975)


def said(groups: str) -> str:
    """What intervals over ``groups`` hold and what they do not."""
    return (
        f"The intervals are over {groups}. They leave out the variation between runs with other "
        "initial weights or image order."
    )


def check_finite(scores: np.ndarray) -> None:
    """Refuse scores that rank nothing.

    Raises:
        ValueError: a score is NaN or infinite.
    """
    if not np.isfinite(scores).all():
        raise ValueError("scores hold NaN or infinity: the training diverged")
