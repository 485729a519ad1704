"""The images per second that section 11 of each notebook measures, in rounds that take turns."""

from typing import Any

RATES = {
    "images_per_second": "files",
    "synthetic_images_per_second": "synthetic",
    "loader_images_per_second": "loader",
}
"""By column of ``comparison.results`` the record's section."""
ENDS = ("", "_low", "_high")
Rate = tuple[float, float, float]
"""Median, minimum and maximum."""


def rate(content: dict[str, Any], section: str = "files") -> Rate:
    """The median, minimum and maximum of a run's rounds.

    An old record has one value without rounds, and for training on files only that of the epochs.
    """
    found = content.get(section) or content["training"]
    value = found["images_per_second"]
    return value, found.get("low", value), found.get("high", value)


def numbers(content: dict[str, Any]) -> dict[str, float]:
    """All of them, by ``RATES`` and ``ENDS``."""
    return {
        f"{column}{end}": value
        for column, section in RATES.items()
        for end, value in zip(ENDS, rate(content, section), strict=True)
    }
