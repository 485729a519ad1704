"""The fairness check of what stands in a notebook before it trains: its inputs and its network."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from helpers.fairness import custom_network, reference, reference_checks
from helpers.fairness.check_results import Check, FairnessCheck
from helpers.networks.weights import Weights
from helpers.recipe import ScaledRecipe


def check_fairness(
    framework: Any,
    model: Any,
    weights: Weights,
    recipe: ScaledRecipe,
    *,
    build_model: Callable[[Mapping[str, np.ndarray]], Any],
    devices: Sequence[Any],
    evaluate_pixels: Callable[[np.ndarray], np.ndarray],
    labels: Sequence[str],
    classes: Sequence[str],
) -> FairnessCheck:
    """Hold a notebook's inputs and network against the shared definitions and the reference.

    Args:
        framework: the module ``helpers.frameworks.<name>``.
        model: the notebook's model with the initial weights loaded.
        weights: these; a custom network's by their names in its framework.
        recipe: scaled to the devices.
        build_model: the notebook's function that makes such a model.
        evaluate_pixels: the notebook's evaluation pipeline from a uint8 image (H, W, planes) to
            what the network sees, float32 (3, crop, crop).
        labels: the notebook's label columns in its order of outputs.
        classes: the images' own order.
    """
    began = time.perf_counter()
    network, outputs = recipe.recipe.network, len(classes)
    checks = [
        reference_checks.same_weights(framework.dump_weights(model), weights.arrays),
        *reference_checks.same_inputs(evaluate_pixels, labels, classes, recipe),
    ]
    if network == "own":
        checks += [Check(name, None, None, custom_network.OWN) for name in custom_network.UNKNOWN]
        checks += custom_network.same_on_all_devices(
            framework, build_model, weights, devices, recipe.recipe, outputs
        )
    else:
        exact = framework.exact(build_model, reference.arrays(network))
        checks += [
            *reference_checks.same_network(framework, exact, devices[:1], network),
            *reference_checks.same_in_training(framework, build_model, exact, network),
            *reference_checks.same_on_all_devices(framework, exact, devices, network),
        ]
    return FairnessCheck(tuple(checks), time.perf_counter() - began)
