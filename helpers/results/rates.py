"""Read the images per second that section 11 of each notebook measures in alternating rounds."""

from collections.abc import Iterable
from statistics import median
from typing import Any

from helpers.results import intervals

RATES = {
    "images_per_second": "files",
    "synthetic_images_per_second": "synthetic",
    "loader_images_per_second": "loader",
}
"""By column of ``comparison.results`` the record's section."""
ENDS = ("", "_low", "_high")
Rate = tuple[float, float, float]
"""The median, and the ends of its interval."""


def rounds(content: dict[str, Any], section: str = "files") -> tuple[float, ...]:
    """The rate of each of a run's rounds."""
    return tuple(content[section]["rounds"])


def together(runs: Iterable[tuple[float, ...]]) -> Rate:
    """The rate of runs that repeat each other, by the rounds of each: the median of their medians.

    Its interval holds the median of all rounds at 95 %, so that a round in which the machine was
    busy with something else does not count, and the median of each run.
    """
    each = list(runs)
    medians, of_all = [median(run) for run in each], intervals.of_median(sum(each, ()))
    return median(medians), min(of_all.low, *medians), max(of_all.high, *medians)


def rate(content: dict[str, Any], section: str = "files") -> Rate:
    """That of one run."""
    return together([rounds(content, section)])
