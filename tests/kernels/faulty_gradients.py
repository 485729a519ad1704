"""What the tests of the ranks' gradients share: the rows as they are, and with faults planted."""

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import two_nodes

from helpers.fairness import process_checks, reference
from helpers.fairness.reference_checks import N_AGAINST_ONE
from helpers.networks.weights import Arrays, Weights
from helpers.training import ranks_gradients
from helpers.training.measured_run import Run
from helpers.training.train_loop import Work
from helpers.training.world import World

SUM, ALONE, WEIGHT = "a sum", "a rank without all-reduce", "another weight on a rank"
WORST = {
    SUM: "2 times as long: a sum in place of a mean?",
    ALONE: "; rank 1 of 2 devices on 2 ranks",
    WEIGHT: "2 devices on 2 ranks",
}
"""What the row of an even batch says of each fault."""
OTHER = 0.1
"""By how much a rank's weight is another."""


def rows_of(
    run: Run, everywhere: Callable[..., Any], weights: Weights | None = None
) -> dict[str, Any]:
    """The fairness check's rows of n devices, as the run's ranks find them.

    With ``weights`` as those of a custom network.
    """
    if weights is None and run.network == "own":
        weights = run.initial
    answers = everywhere(ranks_gradients.answer, "own" if weights else run.network, weights)
    checks = process_checks.of_ranks(answers, run.setup.replicas)
    assert [check.check for check in checks] == list(N_AGAINST_ONE)
    return {check.check: check for check in checks}


def of_two(names: two_nodes.Names) -> two_nodes.Found:
    """On a rank: as ``two_nodes.of_two``, and the gradients of all ranks are compared."""
    found = two_nodes.of_two(names)
    assert_compared(names["this_run"])
    return found


def assert_compared(run: Run, uneven: str = "pass", faults: Collection[str] = tuple(WORST)) -> None:
    """Two ranks give the gradients of one device, and with a fault they do not.

    Args:
        uneven: the verdict of an uneven batch.
        faults: those that a rank can have.
    """
    even_row, uneven_row = N_AGAINST_ONE
    rows = rows_of(run, run.everywhere)
    assert rows[even_row].verdict == "pass" and rows[even_row].threshold == 1e-10, rows
    said = "as long as expected: a mean, not a sum; 2 devices on 2 ranks"
    assert rows[even_row].reason == said
    assert rows[uneven_row].verdict == uneven and rows[uneven_row].threshold == 1e-10, rows
    for fault in faults:
        said = WORST[fault]
        rows = rows_with(run, fault)
        assert rows[even_row].verdict == rows[uneven_row].verdict == "fail", (fault, rows)
        assert rows[even_row].difference > 1e-3 and said in rows[even_row].reason, (fault, rows)


def rows_with(run: Run, fault: str) -> dict[str, Any]:
    """The fairness check's rows of n devices where the ranks have a fault.

    The network is the shallow one: a fault is in what adds its gradients up.
    """
    functions = run.functions

    def build_model(arrays: Arrays) -> Any:
        with functions.scope():
            return run.framework.shallow(arrays, run.world.devices)

    run.functions = replace(functions, build_model=build_model)
    weights = Weights(reference.shallow_arrays(), "random", "shallow")
    try:
        return rows_of(run, partial(run.everywhere, with_fault, fault), weights)
    finally:
        run.functions = functions


def with_fault(
    world: World, work: Work, fault: str, function: Callable[..., Any], *args: Any
) -> Any:
    """On a rank: what a function gives while there is a fault."""
    with pytest.MonkeyPatch.context() as patch:
        module = work.framework.__name__.rpartition(".")[2]
        name = f"in_{module.removeprefix('keras_')}"
        plant = next(each for each in PLANT if each.__name__ == name)
        plant(patch, world, work, fault)
        return function(world, work, *args)


def in_pytorch(patch: pytest.MonkeyPatch, world: World, work: Work, fault: str) -> None:
    import torch
    import torch.distributed as dist

    class Faulty(torch.nn.parallel.DistributedDataParallel):
        def __init__(self, module: Any) -> None:
            super().__init__(module)
            if fault == WEIGHT and world.rank == 1:
                with torch.no_grad():
                    next(module.parameters()).add_(OTHER)
            self.register_comm_hook(None, reduced)

    def reduced(state: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        own = bucket.buffer().clone()

        def divided(done: Any) -> Any:
            if fault == ALONE and world.rank == 1:
                return own
            return done.value()[0] / (1 if fault == SUM else world.size)

        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(divided)

    patch.setattr(work.framework, "DistributedDataParallel", Faulty)


def in_tensorflow(patch: pytest.MonkeyPatch, world: World, work: Work, fault: str) -> None:
    import tensorflow as tf

    sound = tf.distribute.ReplicaContext.all_reduce

    def faulty(self: Any, operation: Any, value: Any, options: Any = None) -> Any:
        total = sound(self, operation, value, options)
        if self.strategy.num_replicas_in_sync == 1:  # one device, whose sum it is
            return total
        if fault == ALONE and world.rank == 1:
            return value
        return tf.nest.map_structure(lambda each: (2 if fault == SUM else 1) * each, total)

    patch.setattr(tf.distribute.ReplicaContext, "all_reduce", faulty)
    if fault == WEIGHT and world.rank == 1:
        with_another_weight(patch, work.framework)


def in_jax(patch: pytest.MonkeyPatch, world: World, work: Work, fault: str) -> None:
    import numpy as np

    sound = work.framework.gradients

    def faulty(model: Any, images: Any, targets: Any, devices: Any) -> Any:
        loss, found = sound(model, images, targets, devices)
        if len(devices) == 1:  # whose sum it is
            return loss, found
        if fault == ALONE and world.rank == 1:
            own = (np.array_split(each, len(devices))[1] for each in (images, targets))
            return sound(model, *own, world.devices)
        return loss, {name: (2 if fault == SUM else 1) * each for name, each in found.items()}

    patch.setattr(work.framework, "gradients", faulty)
    if fault == WEIGHT:  # on all ranks, since each waits while Keras fills variables in another
        with_another_weight(patch, work.framework, OTHER * world.rank)


def with_another_weight(patch: pytest.MonkeyPatch, framework: Any, by: float = OTHER) -> None:
    """Networks that are made from now on have one on this rank, another by so much."""
    for name in ("exact", "shallow"):
        sound = getattr(framework, name)

        def other(*args: Any, sound: Callable[..., Any] = sound) -> Any:
            model = sound(*args)
            weights = framework.dump_weights(model)
            first = next(iter(weights))
            framework.load_weights(model, weights | {first: weights[first] + by})
            return model

        patch.setattr(framework, name, other)


#: Each module's own; ranks get it with what it names, so it is no look-up among a module's names.
PLANT = (in_pytorch, in_tensorflow, in_jax)
