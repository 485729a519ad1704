"""Handmade records of runs on 1 to 128 GPUs under a known law, and what the law says of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import class_records
import records

from helpers import record
from helpers.recipe import lookup

SERIAL = 0.02
"""Amdahl: the share of one device's work that more devices do not make shorter."""
ALONE = 100.0
"""Images/s of one device."""
IMAGES = 2**15
"""An epoch."""
TARGET = 0.75
EPOCHS = {1: 10, 2: 10, 4: 11, 8: 23, 16: 30, 32: 35, 64: 45, 128: 60}
"""Until the target: the learning penalty."""
LAST = 62
"""Epochs of every run."""
TESTED = class_records.test(0.7)


def speed_up(devices: int) -> float:
    """Amdahl's law."""
    return 1 / (SERIAL + (1 - SERIAL) / devices)


def penalty(devices: int) -> float:
    """How many times the images of one device are needed."""
    return EPOCHS[devices] / EPOCHS[1]


def make(
    framework: str = "PyTorch",
    devices: int = 1,
    *,
    nodes: int = 1,
    faster: float = 1.0,
    needed: int | None = None,
    seed: int = 0,
    **given: Any,
) -> dict[str, Any]:
    """A record whose rate and epochs follow the law; ``needed``: other epochs than the law's.

    Validation takes no time, so that the rate until the target is the law's.
    """
    content = records.make(framework, devices, gpu=True, train=IMAGES, **given)
    content["test"], content["data"]["classes"] = TESTED, list(class_records.NAMES)
    rate, needed = faster * ALONE * speed_up(devices), needed or EPOCHS[devices]
    recipe = lookup("resnet44-cifar10", epochs=LAST, seed=seed).on(devices).as_record()
    content["recipe"] = record.plain(recipe)
    content["epochs"] = [
        {
            "epoch": number,
            "learning_rate": 0.1,
            "steps": IMAGES // (128 * devices),
            "images": IMAGES,
            "train_loss": 2.0 / number,
            "train_seconds": IMAGES / rate,
            "images_per_second": rate,
            "valid_loss": 2.1 / number,
            "valid_top1": min(0.99, TARGET * number / needed),
            "valid_top5": 1.0,
            "valid_seconds": 0.0,
        }
        for number in range(1, LAST + 1)
    ]
    content["training"] = {
        "seconds": LAST * IMAGES / rate,
        "images_per_second": rate,
        "first_step_seconds": 1.5 + devices / 8,
    }
    content |= {"files": records.rounds(rate), "synthetic": records.rounds(1.25 * rate)}
    if nodes > 1:
        content["cluster"] = records.world(nodes, virtual=False)
    content["energy"] = {
        "joules": 300.0 * devices * content["training"]["seconds"],
        "images_per_joule": rate / (300.0 * devices),
        "reason": None,
    }
    return content


def save(batch: Path, contents: Sequence[dict[str, Any]]) -> Path:
    """The batch; repeats begin at different times."""
    for number, content in enumerate(contents):
        content["run"]["started"] = f"2026-11-21T01:00:00.{number:06d}+00:00"
    return records.save_each(batch, contents)
