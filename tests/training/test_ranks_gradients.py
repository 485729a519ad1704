"""What a rank asks of its framework, and where the ranks' rows stand in the fairness check.

Real ranks, with faults planted, are in ``tests/kernels``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from helpers.fairness import custom_network, network_checks, reference_checks
from helpers.fairness.check_results import Check, FairnessCheck
from helpers.fairness.reference_checks import N_AGAINST_ONE
from helpers.frameworks import rank_info
from helpers.training import measured_run, ranks_gradients
from helpers.training.world import IN_KERNEL, World

RANK = World(1, 4, ("c", "d"), "cpu", nodes=2, node=1)
NONE = np.zeros(0)


class Rank:
    """A framework and functions, which note what is asked of them."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.in_scope = False
        framework = ModuleType("a_framework")
        vars(framework).update(
            gradients=self.noted("alone"),
            shallow=self.noted("shallow"),
            exact=self.noted("exact"),
            slowest=self.noted("slowest"),
            rank_gradients=self.noted("all ranks"),
        )
        functions = SimpleNamespace(
            scope=self.scope, build_model=None, start=self.noted("start"), stop=self.noted("stop")
        )
        functions.ready = self.noted("ready")
        images = SimpleNamespace(classes=["one", "two"])
        recipe = SimpleNamespace(recipe="the recipe")
        self.work: Any = SimpleNamespace(
            framework=framework, functions=functions, images=images, recipe=recipe
        )

    @contextmanager
    def scope(self) -> Iterator[None]:
        self.in_scope = True
        yield
        self.in_scope = False

    def noted(self, name: str) -> Any:
        def call(*given: Any, **named: Any) -> tuple[str, bool]:
            self.calls.append((name, given[-1] if given else None, self.in_scope))
            return name, self.in_scope

        return call

    @property
    def order(self) -> list[str]:
        return [name for name, *_ in self.calls]


@pytest.fixture
def rank() -> Rank:
    return Rank()


def test_one_device_is_this_ranks_first_and_several_are_all_of_the_world(rank: Rank) -> None:
    over = ranks_gradients.over_all_ranks(RANK, rank.work)
    everywhere = RANK.devices * RANK.processes
    over.gradients(None, NONE, NONE, everywhere[:1])
    over.gradients(None, NONE, NONE, everywhere)
    over.shallow({}, everywhere)
    assert len(everywhere) == RANK.size
    assert rank.calls == [
        ("alone", ("c",), False),
        ("all ranks", ("c", "d"), False),
        ("shallow", ("c", "d"), True),
    ]


def test_a_rank_compares_while_it_is_in_the_notebook_functionss_world(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [Check(name, 0.0, 1.0) for name in N_AGAINST_ONE]
    asked: list[Any] = []

    def same(_: Any, network: Any, devices: Any, architecture: str) -> list[Check]:
        asked.append((devices, architecture))
        rank.calls.append(("compared", None, False))
        return rows

    monkeypatch.setattr(reference_checks, "same_on_all_devices", same)
    assert ranks_gradients.answer(RANK, rank.work, "resnet44", None) == rows
    assert asked == [(("c", "d", "c", "d"), "resnet44")]
    after = ["shallow", "start", "ready", "exact", "compared", "slowest", "stop"]
    assert rank.order == after


def test_of_an_own_network_it_compares_that(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    weights: Any = "the initial ones"
    rows = [Check(name, 0.0, 1.0) for name in N_AGAINST_ONE]

    def same(over: Any, build_model: Any, *given: Any) -> list[Check]:
        assert given == (weights, ("c", "d", "c", "d"), "the recipe", 2)
        return rows

    monkeypatch.setattr(custom_network, "same_on_all_devices", same)
    assert ranks_gradients.answer(RANK, rank.work, "own", weights) == rows
    assert rank.order == ["shallow", "start", "ready", "slowest", "stop"]


@pytest.mark.parametrize(("nodes", "given"), [(1, ("a", "b")), (2, ("a",))])
def test_over_several_nodes_the_kernel_leaves_the_rows_to_the_ranks(
    nodes: int, given: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def check_fairness(*_: Any, devices: Any, **__: Any) -> FairnessCheck:
        assert devices == given
        return FairnessCheck(tuple(reference_checks.with_one_device()))

    monkeypatch.setattr(network_checks, "check_fairness", check_fairness)
    images = SimpleNamespace(labels=[], classes=[])
    run: Any = SimpleNamespace(
        setup=SimpleNamespace(replicas=2), devices=("a", "b"), network="resnet44", images=images
    )
    vars(run).update(framework=None, initial=None, recipe=None)
    vars(run).update(check_parameters=lambda: None, _checked=lambda: None)
    run.monitor = None
    monkeypatch.setattr(rank_info, "here", lambda: None if nodes == 1 else "a rank")
    build: Any = None
    checked: Any = measured_run.Run.check_fairness
    checked.__wrapped__(run, None, build, build, IN_KERNEL)
    said = {check.reason for check in run.fairness_check.checks}
    assert said == {ranks_gradients.LATER if nodes > 1 else "there is one device"}
    assert run._of_network is run.fairness_check
