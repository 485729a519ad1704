"""The bootstrap behind the intervals of both tasks, which draws whole groups of images.

A group's images resemble each other, as a patient's do: as many groups are drawn as there are, with
replacement. Intervals are the percentile ones (Efron and Tibshirani, "An Introduction to the
Bootstrap", chapter 13). All runs draw the same, so that what two of them come to on the same images
can be subtracted draw by draw.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

RESAMPLES = 200
INTERVAL = [0.025, 0.975]
"""The quantiles between which 95 % of the resamples are."""
SAID = "Intervals leave out the variation between runs with other initial weights or image order."


def draws(groups: np.ndarray, sample: Any) -> Iterator[np.ndarray]:
    """How often each image is drawn, ``RESAMPLES`` times; ``sample`` is updated by what was drawn.

    From the generator's raw numbers, which NumPy promises never to change; what it makes of them
    (``integers``, ``choice``) may differ between versions. Taking the remainder favours no group
    by more than one in 10^14.
    """
    count = int(groups.max()) + 1
    for chosen in np.random.PCG64(0).random_raw((RESAMPLES, count)) % count:
        drawn = np.bincount(chosen.astype(np.int64), minlength=count)
        sample.update(drawn.astype("<i4").tobytes())
        yield drawn[groups]


def check_finite(scores: np.ndarray) -> None:
    """Raises ValueError where scores rank nothing."""
    if not np.isfinite(scores).all():
        raise ValueError("scores hold NaN or infinity: the training diverged")
