"""The fairness check of a notebook's own objects, in the processes that will train.

Every process computes the same rows, and the worst of them counts. Rows that one device can answer
are computed by rank 0 while the others wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import repeat
from types import SimpleNamespace
from typing import Any

import numpy as np

from helpers.fairness import custom_network, reference, reference_checks, training_loop
from helpers.fairness.check_results import Check
from helpers.training import launching, notebook_coverage, showing
from helpers.training.notebook_coverage import OUTPUTS, Functions
from helpers.training.run_state import RunState

_ORDER = ("not checked", "pass", "expected", "different", "fail")


def check(run: RunState, replica: Any, *functions: Any) -> None:
    """See :meth:`helpers.run.Run.check`."""
    if not run.launched:
        launching.begin_training(run)
    of = Functions(*functions)
    run.loop.predict = of.predict
    held = run.framework.dump_weights(replica.network)
    rows = [reference_checks.same_weights(held, run.initial.arrays)]
    rows += notebook_coverage.check(run, of, replica.network)
    recipe = run.setup.recipe.recipe
    rows += training_loop.check_fairness(
        lambda trial: run.apart(partial(_walked, run, of, replica.network, trial)),
        devices=run.setup.replicas,
        precision=recipe.precision,
        rule=recipe.rule,
        task=recipe.task,
        skipped=run.framework.SKIPPED,
    )
    exact, framework = None, _over_all(run, replica.network)
    if run.recipe.network != "own":  # in float64, with the reference's weights
        with run.recipe.varied(outputs=OUTPUTS):
            weights = reference.arrays(run.recipe.network)
            exact = run.framework.exact(_build(run, of), weights)
    rows += run.apart(partial(_on_all_devices, run, of, exact, framework))
    worst = [  # each row as the process has it in which it is worst
        max(each, key=lambda row: (_ORDER.index(row.verdict), row.difference or 0.0))
        for each in zip(*run.gather(rows), strict=True)
    ]
    of_network = partial(_of_network, run, of, exact, framework)
    alone = run.apart(of_network) if run.rank == 0 else []
    run.framework.free_memory(run.own_devices)
    run.gather(None)  # the others wait here and not in a collective of training
    if run.rank == 0:
        run.loop.updated([*worst[:1], *alone, *worst[1:]])
        run.tell(showing.table, run.loop.fairness.table())


def _walked(
    run: RunState, of: Functions, network: Any, trial: training_loop.Trial
) -> tuple[float, Mapping[str, Any], np.ndarray]:
    """Take a trial's steps with the shallow network, by the notebook's functions.

    Their loss, the weights after them, and the logits of an evaluation.
    """
    rule = trial.rule
    with run.recipe.varied(
        optimizer="adam" if rule.name == "adam" else "sgd",
        momentum=rule.momentum,
        weight_decay=rule.weight_decay,
        learning_rate=1.0,
        lr_scaling="none",
        rates=trial.rates,
        epochs=1,
        steps=trial.steps,
        outputs=OUTPUTS,
        batch_size=len(trial.shares[0][0]),
    ):
        other = of.make_replica(notebook_coverage.shallow(run, trial.weights, network))
        batch, count = _batch(run, trial.shares)
        # From the second epoch on training follows an evaluation: it has to switch back.
        of.predict(other, [batch], count)
        loss = of.train_steps(other, repeat(batch, trial.steps), trial.steps)
        logits = np.asarray(of.predict(other, [batch], count))
        # After the evaluation, like a checkpoint: it may share BatchNorm's statistics.
        return loss, run.framework.dump_weights(other.network), logits


def _batch(run: RunState, shares: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[Any, int]:
    """This process's shares as a batch of the notebook's loader, and the images of all."""
    own = len(shares) // run.loop.processes
    mine = shares[run.rank * own : (run.rank + 1) * own]
    # The reference's images are grey; a loop that trains on RGB gets that plane three times.
    pixels = np.concatenate([share.repeat(run.images.recipe.planes, axis=3) for share, _ in mine])
    targets = np.concatenate([targets for _, targets in mine])
    numbers = run.rank * len(pixels) + np.arange(len(pixels))
    return run.framework.as_loaded(pixels, targets, numbers), sum(len(share) for share, _ in shares)


def _of_network(run: RunState, of: Functions, exact: Any, framework: Any) -> list[Check]:
    """The network in float64 against the reference, on all devices if this process has them."""
    network = run.recipe.network
    if network == "own":
        return [Check(name, None, None, custom_network.OWN) for name in custom_network.UNKNOWN]
    alone, even = run.loop.processes == 1, reference.IMAGES % len(run.own_devices) == 0
    devices = run.own_devices if alone and even else run.own_devices[:1]
    with run.recipe.varied(outputs=OUTPUTS):
        return [
            *reference_checks.same_network(framework, exact, devices, network),
            *reference_checks.same_in_training(run.framework, _build(run, of), exact, network),
        ]


def _on_all_devices(run: RunState, of: Functions, exact: Any, framework: Any) -> list[Check]:
    """Gradients of all devices against one, in float64."""
    network, world = run.recipe.network, run.setup.replicas
    if world == 1:
        return reference_checks.with_one_device()
    devices = (run.own_devices * world)[:world]  # of other processes, too
    if network == "own":
        return custom_network.same_on_all_devices(
            framework,
            _build(run, of),
            run.initial,
            devices,
            run.setup.recipe.recipe,
            run.recipe.outputs,
        )
    return reference_checks.same_on_all_devices(framework, exact, devices, network)


def _over_all(run: RunState, beside: Any) -> Any:
    """The framework's functions, over the devices of all processes if there are several.

    The same gradients are computed once: a compiler may take long for them.
    """
    framework, one_process = run.framework, run.loop.processes == 1
    known: dict[tuple[int, bytes, int], tuple[Any, Any]] = {}

    def gradients(model: Any, images: Any, targets: Any, devices: Sequence[Any]) -> Any:
        given, alone = (id(model), images.tobytes(), len(devices)), len(devices) == 1
        if given not in known:  # and the model is kept, so that no other one has its id
            on = run.own_devices[:1] if alone else run.own_devices
            compute = framework.gradients if alone or one_process else framework.rank_gradients
            known[given] = model, compute(model, images, targets, on)
        return known[given][1]

    def shallow(arrays: Mapping[str, np.ndarray], devices: Sequence[Any]) -> Any:
        return notebook_coverage.shallow(run, arrays, beside)

    found = {"exact": framework.exact, "logits": framework.logits}
    return SimpleNamespace(**found, shallow=shallow, gradients=gradients)


def _build(run: RunState, of: Functions) -> Callable[[Mapping[str, np.ndarray]], Any]:
    """The notebook's ``build_model`` with other initial weights."""

    def build(arrays: Mapping[str, np.ndarray]) -> Any:
        before, run.other_arrays = run.other_arrays, arrays
        try:
            return of.build_model()
        finally:
            run.other_arrays = before

    return build
