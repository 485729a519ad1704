"""What holds of every notebook's optimisers: rule, weight decay, and a checkpoint's state."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from notebook_cells import failed, functions_with, only_the_loop, with_loss_of
from resuming import before_training

from helpers.fairness import reference, training_loop
from helpers.fairness.training_loop import RULES
from helpers.recipe import Rule
from helpers.training.train_loop import take_steps
from helpers.training.world import World

TASKS = ("multilabel", "multiclass")
EVERY_DAY = ("momentum", "multiclass")
"""The other rules and the other task are in the fairness check of the notebooks as they are."""
CASES = [
    pytest.param(*case, marks=() if case == EVERY_DAY else pytest.mark.slow)
    for case in product(RULES, TASKS)
]
"""What :func:`assert_rule` can be called with."""


def check_training_loop(run: Any, names: dict[str, Any]) -> None:
    """The loop's steps alone: who is there, what is read and whose statistics are kept is the same
    for every rule."""
    with pytest.MonkeyPatch.context() as patch:
        only_the_loop(patch)
        patch.setattr(training_loop, "_statistics", lambda *given: [])
        run.check_training_loop(**vars(functions_with(names)))


def assert_rule(notebook: str, folder: Path, optimizer: str, task: str) -> None:
    """The rule walks the reference's way down a task's loss; its state is kept.

    With the recipe's weight decay.
    """
    names = before_training(notebook, folder)
    run, scaled = names["this_run"], names["scaled"]
    kind, momentum = ("adam", 0.0) if optimizer == "adam" else ("sgd", RULES[optimizer].momentum)
    recipe = replace(scaled.recipe, optimizer=kind, momentum=momentum, weight_decay=1e-4)
    names["scaled"] = replace(scaled, recipe=recipe)
    with_loss_of(names, notebook, task)
    check_training_loop(run, names)
    checks = run.fairness_check.checks
    assert failed(checks) == set(), [check for check in checks if check.verdict == "fail"]
    (row,) = (check for check in checks if check.check.startswith("weight decay in 5"))
    assert (row.verdict, row.reason) == ("pass", next(iter(training_loop.DECAYS)))
    assert_state_is_kept(run, RULES[optimizer], task)


def assert_wrong_losses_of_classes_are_caught(
    notebook: str, folder: Path, **wrong: Callable[..., Any]
) -> None:
    """Each of ``wrong`` in place of the notebook's loss fails by its loss and by its way."""
    names = before_training(notebook, folder)
    with_loss_of(names, notebook, "multiclass")
    run = names["this_run"]
    sound = names["criterion"]
    check_training_loop(run, names)
    assert failed(run.fairness_check.checks) == set()
    for said, criterion in wrong.items():
        names["criterion"] = criterion(sound)
        check_training_loop(run, names)
        rows = {"mean loss of 5 SGD steps", "weight change after 5 SGD steps"}
        assert rows <= failed(run.fairness_check.checks), said


def assert_state_is_kept(run: Any, rule: Rule, task: str) -> None:
    """Three steps are one after two that were saved, also where the rate changes in between."""
    framework, start = run.framework, reference.shallow_arrays()
    rates = {"sgd": 0.1, "momentum": 0.1, "adam": 1e-3}[rule.name] * np.array([1, 1, 0.1])

    def replica(
        world: World, work: Any, arrays: Any, state: Mapping[str, np.ndarray], rates: Any
    ) -> tuple[Any, Any]:
        functions = work.functions
        with functions.scope():
            network = framework.shallow(arrays, world.devices)
        replica = functions.start(world, network, rule=rule, rates=iter(map(float, rates)))
        scaler = getattr(replica, "scaler", None)
        framework.load_optimizer(replica.network, replica.optimizer, state, scaler)
        share = reference.batch_of(task)
        loader = functions.make_fixed_loader(world, [share] * len(world.devices))
        functions.ready(replica, [loader])
        take_steps(work, replica, loader, len(rates))
        found = framework.dump_weights(replica.network)
        kept = framework.dump_optimizer(replica.network, replica.optimizer, scaler)
        functions.stop(replica)
        return found, kept

    whole, _ = run.everywhere(replica, start, {}, rates)[0]
    two, state = run.everywhere(replica, start, {}, rates[:2])[0]
    resumed, _ = run.everywhere(replica, two, state, rates[2:])[0]
    assert_continues(rule, whole, two, state, resumed)


Arrays = Mapping[str, np.ndarray]


def assert_continues(
    rule: Rule, whole: Arrays, two: Arrays, state: Arrays, resumed: Arrays
) -> None:
    """The shallow network's weights after three steps are those after two and one.

    ``state`` is the optimiser's in between.
    """
    start = reference.shallow_arrays()
    trained = [name for name in start if "running" not in name]
    assert {name for name in state if "/" in name} == {
        f"{moment}/{name}" for moment in rule.moments for name in trained
    }
    assert "step" in state
    for name in trained:
        np.testing.assert_allclose(resumed[name], whole[name], rtol=1e-5, atol=1e-6)
        assert not np.array_equal(whole[name], start[name])
    if rule.name == "momentum":  # as PyTorch has it: of the size of gradients, and with their sign
        way = np.concatenate([(whole[name] - start[name]).ravel() for name in trained])
        velocity = np.concatenate([state[f"first/{name}"].ravel() for name in trained])
        assert np.vdot(way, velocity) < 0
        two_steps = np.linalg.norm(way) / np.linalg.norm(velocity)
        assert 0.05 < two_steps < 0.5, "without the rate in it"
