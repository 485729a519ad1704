"""What the NIH publishes about its set: counts by finding, which come together, images a patient.

The figures stand in `nih_counts.json`, with their source.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from data_prep.readers.nih_labels import FINDINGS


@cache
def published_counts() -> dict[str, Any]:
    """The content of nih_counts.json."""
    text = resources.files("data_prep").joinpath("nih_counts.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


def finding_counts() -> dict[str, int]:
    """Images by finding, in the order of `FINDINGS`, of `published()["images"]`."""
    counts = published_counts()["counts"]
    return {finding: int(counts[finding]) for finding in FINDINGS}


def finding_sets() -> list[tuple[tuple[str, ...], int]]:
    """Each set of findings that images of the NIH have, with the number of such images."""
    return [
        (tuple(FINDINGS["abcdefghijklmn".index(letter)] for letter in letters), int(count))
        for letters, count in published_counts()["combinations"].items()
    ]
