"""One training step of the shallow network over all devices, for the self-test.

Its loss and its gradients in float32, summed over the devices, are compared with the reference.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from helpers.fairness import process_checks, reference
from helpers.fairness.training_loop import LIMITS

WAY = 1e-4
"""How far the weights are moved to find the slope of the reference's loss."""


def problem(framework: Any, devices: Sequence[Any]) -> str | None:
    """What is wrong with the step; None if it is right.

    The gradients are checked along one random direction, by the change of the loss.
    """
    start, limits = reference.shallow_arrays(), LIMITS["fp32"]
    pixels, targets = reference.batch()
    numbers = range(len(devices))  # each device has another batch, so that a missing sum is noticed
    pixels = np.concatenate([pixels // (1 + number) for number in numbers])
    targets = np.concatenate([np.roll(targets, number, axis=1) for number in numbers])
    images = reference.network_input(pixels).astype(np.float32)
    loss, found = framework.gradients(framework.shallow(start, devices), images, targets, devices)

    random = np.random.default_rng(0)
    trained = [name for name in start if "running" not in name]
    direction = {name: random.standard_normal(start[name].shape) for name in trained}

    def loss_at(way: float) -> float:
        moved = {name: start[name] + way * array for name, array in direction.items()}
        return process_checks.mean_loss(reference.shallow_logits(start | moved, pixels), targets)

    off = abs(loss - loss_at(0))
    if not off <= limits.values:  # NaN too
        return f"wrong result: the loss is off by {off:.3g}"
    slope = (loss_at(WAY) - loss_at(-WAY)) / (2 * WAY)
    size = np.sqrt(sum(np.square(found[name], dtype=np.float64).sum() for name in trained))
    along = sum(np.vdot(found[name], direction[name]) for name in trained)
    off = abs(along - slope) / size
    return None if off <= limits.way else f"wrong result: the gradients are off by {off:.3g}"
