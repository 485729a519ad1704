"""Handmade records of runs that tell classes: valid ones, to be bent by the tests."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import records

from helpers import record
from helpers.recipe import lookup
from helpers.record import tasks
from helpers.training import metrics

NAMES = ("plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
IMAGES = 100
"""Images of each class."""


def make(
    framework: str = "PyTorch",
    devices: int = 2,
    *,
    top1: float = 0.7,
    names: Sequence[str] = NAMES,
    **given: Any,
) -> dict[str, Any]:
    """A finished run's record whose top-1 is about ``top1``; ``given`` is for ``records.make``."""
    content = records.make(framework, devices, **given)
    content["recipe"] = lookup("resnet44-cifar10").on(devices).as_record()
    content["test"] = test(top1, names)
    content["data"]["classes"] = list(names)
    reached = content["test"]["top1"]
    for number, epoch in enumerate(content["epochs"], start=1):
        del epoch["valid_auc"]
        top5 = None if len(names) <= tasks.GUESSES else 1.0
        epoch |= {"valid_top1": round(reached * (0.5 + 0.1 * number), 6), "valid_top5": top5}
    whole: dict[str, Any] = record.plain(content)
    return whole


def test(top1: float, names: Sequence[str] = NAMES) -> dict[str, Any]:
    """The section ``test``: of each class a share about ``top1``, the others taken for the next."""
    counts = len(names)
    targets = np.repeat(np.arange(counts), IMAGES)
    scores = np.zeros((len(targets), counts))
    for image, target in enumerate(targets):
        place = image % IMAGES
        right = place < round(IMAGES * min(1, max(0, top1 + 0.02 * (target % 5 - 2))))
        named = target if right else (target + 1 + (place % 3 == 0)) % counts
        scores[image, named] = 2
        scores[image, target] += 1
    result = metrics.evaluate(targets, scores, range(len(targets)), names, hashlib.sha256())
    found: dict[str, Any] = record.plain(result)
    return found | {"loss": 0.4, "seconds": 2.0, "sample": "b" * 32}
