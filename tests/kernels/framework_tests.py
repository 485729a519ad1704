"""The tests of a framework's modules that need no notebook, run once in each environment.

A framework's test file has them by ``from framework_tests import *``, and says in ``ADAPTER`` what
they run on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import multiplied
import numpy as np
import own_networks
import probed
import pytest
import same_networks

from helpers.fairness import reference

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
    probe_apart: bool = False
    """Whether its self-test needs a process that has computed nothing."""

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


def test_a_matrix_product_is_waited_for(adapter: OfFramework) -> None:
    multiplied.assert_waited_for(adapter.framework, adapter.devices[1])


def test_the_probe_works_and_finds_what_is_wrong(adapter: OfFramework, tmp_path: Path) -> None:
    if adapter.probe_apart:
        probed.in_own_process([adapter.module], tmp_path)
    else:
        probed.assert_all(adapter.framework, tmp_path)


def test_resnet50_is_the_references(adapter: OfFramework) -> None:
    same_networks.assert_is_the_references(
        adapter.framework,
        adapter.networks,
        "resnet50",
        adapter.devices[:1],
        set(adapter.known & {STEP}),
    )


def test_a_resnet_with_another_epsilon_is_caught(adapter: OfFramework) -> None:
    one = adapter.devices[:1]
    same_networks.assert_caught(
        adapter.framework, adapter.networks, "resnet44", one, bn_epsilon=2e-5
    )


def test_its_weights_follow_from_the_seed(adapter: OfFramework, tmp_path: Path) -> None:
    own_networks.assert_same_seed_same_bytes(adapter.framework, adapter.module, tmp_path)


def test_mistakes_in_own_code_are_one_line_each(adapter: OfFramework, tmp_path: Path) -> None:
    own_networks.assert_mistakes_are_one_line_each(adapter.networks, adapter.module, tmp_path)
