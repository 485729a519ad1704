"""Compare the gradients of all ranks with those of one device, in float64.

The rows of the fairness check are those of one machine (``fairness.reference_checks``, and
``fairness.custom_network``), and so is their code. It is run on every rank: there ``n devices`` are
all devices of the world, whose gradients are combined as training combines them, in the world that
the notebook's functions has joined (the framework's ``rank_gradients``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from types import SimpleNamespace
from typing import Any

import numpy as np

from helpers.fairness import custom_network, reference, reference_checks, training_loop
from helpers.fairness.check_results import Check
from helpers.networks.weights import Weights
from helpers.training.train_loop import Work
from helpers.training.world import World

LATER = "the ranks compare them, in section 9"


def answer(world: World, work: Work, network: str, weights: Weights | None) -> list[Check]:
    """What one rank finds: its devices and those of all others against its first alone.

    Args:
        network: the recipe's, one of ``networks.shapes.NETWORKS``, or ``own``.
        weights: the initial ones of a custom network, else None.
    """
    functions, framework = work.functions, work.framework
    with functions.scope():
        shallow = framework.shallow(reference.shallow_arrays(), world.devices)
    # No step is taken: a replica of the notebook's functions joins the ranks to a world.
    replica = functions.start(world, shallow, rule=training_loop.SGD, rates=repeat(0.1))
    functions.ready(replica, [])
    over_ranks, devices = over_all_ranks(world, work), world.devices * world.processes
    if network == "own":
        assert weights is not None, "a custom network's weights come from the kernel"
        recipe, outputs = work.recipe.recipe, len(work.images.classes)
        checks = custom_network.same_on_all_devices(
            over_ranks, functions.build_model, weights, devices, recipe, outputs
        )
    else:
        exact = framework.exact(functions.build_model, reference.arrays(network))
        checks = reference_checks.same_on_all_devices(over_ranks, exact, devices, network)
    framework.slowest(0.0, world.devices)  # no rank leaves the world before all are through
    functions.stop(replica)
    return checks


def over_all_ranks(world: World, work: Work) -> Any:
    """What the checks ask of a framework's module, for n devices of this and other ranks.

    ``gradients`` of several devices are those of all, whatever the handles; of one they are those
    of this rank's first.
    """
    framework = work.framework

    def shallow(arrays: Mapping[str, np.ndarray], devices: Sequence[Any]) -> Any:
        with work.functions.scope():
            return framework.shallow(arrays, world.devices)

    def gradients(
        model: Any, images: np.ndarray, targets: np.ndarray, devices: Sequence[Any]
    ) -> tuple[float, dict[str, np.ndarray]]:
        if len(devices) == 1:
            return framework.gradients(model, images, targets, world.devices[:1])
        return framework.rank_gradients(model, images, targets, world.devices)

    return SimpleNamespace(exact=framework.exact, shallow=shallow, gradients=gradients)
