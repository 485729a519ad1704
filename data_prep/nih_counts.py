"""Load the NIH's published counts: images per finding, per set of findings and per patient.

The figures are in `nih_counts.json`, with their source.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from data_prep.readers.nih_labels import FINDINGS


@cache
def published_counts() -> dict[str, Any]:
    """Return the content of nih_counts.json."""
    text = resources.files("data_prep").joinpath("nih_counts.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


def finding_counts() -> dict[str, int]:
    """Return the images per finding, in the order of `FINDINGS`."""
    counts = published_counts()["counts"]
    return {finding: int(counts[finding]) for finding in FINDINGS}


def finding_sets() -> list[tuple[tuple[str, ...], int]]:
    """Return each set of findings in the NIH's data set, with the number of its images."""
    return [
        (tuple(FINDINGS["abcdefghijklmn".index(letter)] for letter in letters), int(count))
        for letters, count in published_counts()["combinations"].items()
    ]
