"""The tests of a framework's modules that need no notebook, run once in each environment.

A framework's test file has them by ``from framework_tests import *``, and says in ``ADAPTER`` what
they run on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import own_networks
import pytest
import same_networks

from helpers.errors import UnsupportedError
from helpers.fairness import one_step, reference
from helpers.recipe.settings import PRECISIONS

STEP = "running variance after a step"


@dataclass(frozen=True)
class OfFramework:
    """What the tests run on."""

    framework: Any
    networks: ModuleType
    devices: Sequence[Any]
    """Two CPU devices."""
    known: frozenset[str] = frozenset()
    """Rows of the fairness check that are a known difference."""

    @property
    def module(self) -> str:
        name: str = self.framework.__name__
        return name.rpartition(".")[2]


@pytest.fixture(scope="module")
def adapter(request: pytest.FixtureRequest) -> OfFramework:
    found: OfFramework = request.module.ADAPTER
    return found


def test_weights_that_do_not_fit_are_refused(adapter: OfFramework) -> None:
    arrays, load = reference.shallow_arrays(), adapter.framework.load_weights
    model = adapter.framework.shallow(arrays, adapter.devices)
    with pytest.raises(ValueError, match=r"classifier\.odd"):
        load(model, arrays | {"classifier.odd": np.zeros(1, np.float32)})
    with pytest.raises(ValueError, match=r"classifier\.bias"):
        load(model, {name: each for name, each in arrays.items() if name != "classifier.bias"})
    transposed = {"classifier.weight": np.ascontiguousarray(arrays["classifier.weight"].T)}
    with pytest.raises((ValueError, RuntimeError), match=r"classifier\.weight"):
        load(model, arrays | transposed)


def test_a_precision_that_it_cannot_compute_in_is_refused_with_its_reason(
    adapter: OfFramework,
) -> None:
    reasons = {name: adapter.framework.SKIPPED.get(name) for name in PRECISIONS}
    for precision in (name for name, reason in reasons.items() if reason):
        with pytest.raises(UnsupportedError, match=f"precision {precision}: {reasons[precision]}"):
            adapter.framework.configure(precision, "gpu")
    with pytest.raises(UnsupportedError, match="tensor cores"):
        adapter.framework.configure("tf32", "cpu")


def test_the_step_of_the_self_test_is_right_and_another_is_not(adapter: OfFramework) -> None:
    taken: list[Any] = []

    def gradients(*given: Any) -> Any:
        taken.append(adapter.framework.gradients(*given))
        return taken[-1]

    def problem(gradients: Callable[..., Any]) -> str | None:
        step = SimpleNamespace(shallow=lambda *given: None, gradients=gradients)
        return one_step.problem(step, adapter.devices)

    step = SimpleNamespace(shallow=adapter.framework.shallow, gradients=gradients)
    assert one_step.problem(step, adapter.devices) is None
    [(loss, found)] = taken
    off = str(problem(lambda *given: (loss + 1e-4, found)))
    assert off.startswith("wrong result: the loss is off by 0.0001")
    for name in found:
        for factor in (0, 2, np.nan):
            other = found | {name: found[name] * factor}
            off = str(problem(lambda *given, other=other: (loss, other)))
            assert off.startswith("wrong result: the gradients are off by "), (name, factor)


def test_resnet50_is_the_references(adapter: OfFramework) -> None:
    same_networks.assert_is_the_references(
        adapter.framework,
        adapter.networks,
        "resnet50",
        adapter.devices[:1],
        set(adapter.known & {STEP}),
    )


def test_a_resnets_logits_are_the_references(adapter: OfFramework) -> None:
    one = adapter.devices[:1]
    found = same_networks.verdict(adapter.framework, adapter.networks, "resnet44", one)
    assert found == "pass"


def test_its_weights_follow_from_the_seed(adapter: OfFramework, tmp_path: Path) -> None:
    own_networks.assert_same_seed_same_bytes(adapter.framework, adapter.module, tmp_path)


def test_mistakes_in_own_code_are_one_line_each(adapter: OfFramework, tmp_path: Path) -> None:
    own_networks.assert_mistakes_are_one_line_each(adapter.networks, adapter.module, tmp_path)
