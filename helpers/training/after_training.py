"""What is done after a training has ended: its check, and its memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

from helpers.fairness import check_results, process_checks, training_checks, training_loop
from helpers.fairness.check_results import DIFFERENT, Check
from helpers.fairness.observed import Observed, first_batches
from helpers.training.run_state import RunState


def checks(
    run: RunState,
    digests: Sequence[str],
    logits: Sequence[np.ndarray | None],
    observed: Sequence[Observed],
) -> list[Check]:
    """Check that the training followed the recipe, and that all replicas have the same weights."""
    limit = training_loop.LIMITS[run.recipe.precision].values
    found = []
    if known := [each for each in logits if each is not None]:
        found = process_checks.after_training(digests, known, run.setup.replicas, limit)
    return found + training_checks.check_fairness(
        observed,
        run.setup.recipe,
        len(run.train_split),
        on_gpu=run.on_gpu,
        cpus=run.setup.of_all_nodes.cpus,
    )


def in_words(checks: Sequence[Check]) -> str:
    """The rows that failed or are different, one line each, and a count of each verdict."""
    said = [
        f"{check.check}: {check.verdict}, {check.variant or check.reason}\n"
        for check in checks
        if check.verdict in ("fail", DIFFERENT)
    ]
    counts = check_results.counted(check.verdict for check in checks)
    return f"{''.join(said)}Checks of this training: {counts}\n"


def as_record(observed: Sequence[Observed], step_seconds: Sequence[float]) -> dict[str, Any]:
    """What the record's section ``training`` says of how it was computed."""
    seen = observed[0].seen
    said: dict[str, Any] = {"execution": seen.execution, "convolutions": seen.convolutions}
    said["threads"] = seen.threads
    said["first_batches"] = first_batches(observed)
    if step_seconds:
        extremes = {"minimum": min(step_seconds), "maximum": max(step_seconds)}
        said["step_seconds"] = {"median": median(step_seconds), **extremes}
    return said


def held(run: RunState, observed: Sequence[Observed]) -> int | None:
    """The most bytes that a device held in training; None if the driver tells of a GPU."""
    if run.on_gpu:
        pooled = (each.pooled for each in observed if each.pooled is not None)
        return max(pooled, default=None)
    most: int = max(each.resident for each in observed)
    return most * len(observed) // run.setup.replicas


def of_each_device(run: RunState, predict: Callable[..., Any], replica: Any) -> np.ndarray:
    """Every device's logits for one batch of noise, (devices, images, outputs)."""
    r, world = run.recipe, run.setup.replicas
    count, own = r.batch_size, world // run.loop.processes
    random = np.random.default_rng(r.seed)
    shape = (count, r.crop, r.crop, run.images.recipe.planes)
    pixels = random.integers(0, 256, shape, dtype=np.uint8)
    targets = np.zeros_like(run.train_split.targets[:1]).repeat(count, axis=0)
    numbers = run.rank * own * count + np.arange(own * count)
    batch = run.framework.as_loaded(
        np.concatenate([pixels] * own), np.concatenate([targets] * own), numbers
    )
    found: np.ndarray = np.asarray(predict(replica, [batch], world * count))
    return found.reshape(world, count, -1)
