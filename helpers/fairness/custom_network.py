"""The fairness check of a custom network, for which there is no reference.

Checks that need a reference are skipped and say why. The others run as for every network: initial
weights, inputs, gradients of n devices, and afterwards the training loop.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from helpers.errors import in_a_line
from helpers.fairness import reference, reference_checks
from helpers.fairness.check_results import Check
from helpers.networks.weights import Weights
from helpers.recipe import Recipe

OWN = "custom network"

SINGLE = 1e-2
"""Limit of the gradients' relative distance in float32, for a network that computes in nothing
else. Gradients that are summed are 1 away, and one device of ten left out is 0.1 away."""

UNKNOWN = (
    "logits, evaluation",
    "loss",
    "gradients",
    "logits, training",
    "running mean after a step",
    "running variance after a step",
)
"""Checks that need a reference."""


def same_on_all_devices(
    framework: Any,
    build_model: Callable[[Mapping[str, np.ndarray]], Any],
    weights: Weights,
    devices: Sequence[Any],
    recipe: Recipe,
    outputs: int,
) -> list[Check]:
    """Gradients of n devices against one, with two images of noise for each; BatchNorm frozen.

    The row for an uneven batch is the same as in :func:`reference_checks.same_on_all_devices`.

    The check computes in float64, or gives the reason if the network cannot. Each output is a
    sigmoid here, whatever the task.
    """
    if len(devices) == 1:
        return reference_checks.with_one_device()
    count, random = 2 * len(devices), np.random.Generator(np.random.PCG64(reference.SEED))
    shape = (count, recipe.crop, recipe.crop, recipe.planes)
    images = reference.network_input(random.integers(0, 256, shape, dtype=np.uint8), recipe)
    targets = (random.random((count, outputs)) < 0.3).astype(np.float32)
    in_float32 = ""
    try:
        network = framework.exact(build_model, weights.arrays)
        _, one = framework.gradients(network, images, targets, devices[:1])
    except Exception as error:  # a framework's own, of whatever kind: what is wrong is raised again
        in_float32 = f"; computed in float32, for in float64 it fails: {in_a_line(error)}"
        network = build_model(weights.arrays)
        _, one = framework.gradients(network, images, targets, devices[:1])
    _, each = framework.gradients(network, images, targets, devices)
    one, each = (np.concatenate([found[n].ravel() for n in sorted(found)]) for found in (one, each))
    limit = reference_checks.EXACT if one.dtype == np.float64 else SINGLE
    reason = reference_checks.scale_in_words(each, one, limit, len(devices)) + in_float32
    return [
        Check(reference_checks.N_AGAINST_ONE[0], reference.relative(each, one), limit, reason),
        reference_checks.uneven_on_all_devices(framework, devices),
    ]
