"""What the tests of every framework assert of its networks: they are the reference's, or caught."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from helpers.fairness import reference, reference_checks
from helpers.fairness.check_results import Check
from helpers.networks.shapes import shapes
from helpers.recipe import RECIPES

Arrays = Mapping[str, np.ndarray]


def builder(
    framework: Any,
    networks: Any,
    network: str,
    device: Sequence[Any],
    spoil: Callable[[Any], None] = lambda model: None,
    **norms: Any,
) -> Callable[[Arrays], Any]:
    """What makes a network of its weights; ``norms`` are other settings of BatchNorm."""

    def build_model(arrays: Arrays) -> Any:
        model = networks.build(network, arrays, replace(RECIPES["chexnet"], **norms))
        if hasattr(model, "initialize"):  # Gluon places a model so
            model.initialize(ctx=list(device))
        spoil(model)
        framework.load_weights(model, arrays)
        return model

    return build_model


def assert_is_the_references(
    framework: Any, networks: Any, network: str, device: Sequence[Any], known: Iterable[str] = ()
) -> None:
    """Every row is passed; only ``known`` differ, and for a known reason.

    On one device: that several give the same is the notebooks' to show, of other networks.
    """
    build_model, start = builder(framework, networks, network, device), reference.arrays(network)
    held = framework.dump_weights(build_model(start))
    assert {name: array.shape for name, array in held.items()} == shapes(network)
    model = framework.exact(build_model, start)
    found = [
        reference_checks.same_weights(held, start),
        *reference_checks.same_network(framework, model, device, network),
        *reference_checks.same_in_training(framework, build_model, model, network),
    ]
    assert [check.check for check in found if check.verdict == "fail"] == []
    assert {check.check for check in found if check.verdict == "expected"} == set(known)
    assert {check.verdict for check in found} <= {"pass", "expected"}
    assert_in_double(found)


def assert_in_double(checks: Iterable[Check]) -> None:
    exact = [check for check in checks if check.threshold == reference_checks.EXACT]
    assert len(exact) >= 5, "logits, loss and three gradients"


def verdict(
    framework: Any, networks: Any, network: str, device: Sequence[Any], **norms: Any
) -> str:
    """Whether the logits of a network are the reference's; ``norms`` as :func:`builder` has it."""
    build_model = builder(framework, networks, network, device, **norms)
    model = framework.exact(build_model, reference.arrays(network))
    return reference_checks.same_logits(framework, model, network).verdict
