"""The work of every process of a run, the same in all frameworks: epochs, test, measurements.

``helpers.training.measured_run`` calls these where the replicas live: in the notebook's own
process, in a child, or in a process for each device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from helpers.errors import LoaderError
from helpers.fairness.training_checks import Evaluation, Observed
from helpers.fairness.training_loop import Trial
from helpers.networks import weights
from helpers.networks.weights import Arrays
from helpers.training import (
    arithmetic,
    checkpoint,
    measurement_rounds,
)
from helpers.training.epochs import (
    Training,
    check_count,
    counted_steps,
    ending,
    evaluating,
)
from helpers.training.observer import Evaluated
from helpers.training.step_clock import StepClock
from helpers.training.work import Work
from helpers.training.world import TrainingFunctions, World

WEIGHTS = "weights.safetensors"
RUN = "run"
"""What their file's metadata calls the id of the run that trained them."""


@dataclass(frozen=True)
class Trained:
    """What training leaves: the epochs' rows, and seconds."""

    history: list[dict[str, Any]]
    first_step: float
    stalled: float
    """For how long writing checkpoints held training up."""
    digest: str
    """The digest of this process's weights."""
    logits: np.ndarray
    """What each of all devices makes of the same images, (devices, images, outputs)."""
    observed: Observed | None = None
    """What this process noted of it."""
    steps: Sequence[float] = ()
    """Seconds of each step, without the first of each epoch."""


class Tested(NamedTuple):
    """What the test leaves: logits (images, outputs), mean loss, seconds, and its own images."""

    scores: np.ndarray
    loss: float
    seconds: float
    evaluation: Evaluation


def check_training_loop(world: World, work: Work, trial: Trial) -> tuple[float, Arrays, np.ndarray]:
    """Take a trial's steps with the shallow network.

    Returns:
        The mean loss of the steps; after them the weights, and the logits (images, outputs) of all
        shares one after the other.
    """
    functions, framework = work.functions, work.framework
    with functions.scope():
        network = framework.shallow(trial.weights, world.devices)
    replica = functions.start(world, network, rule=trial.rule, rates=iter(trial.rates))
    first = world.rank * len(world.devices)
    own = trial.shares[first : first + len(world.devices)]
    # The reference's images are grey; a loop that trains on RGB is given that plane three times.
    shares = [(pixels.repeat(work.images.planes, axis=3), targets) for pixels, targets in own]
    loader = functions.make_fixed_loader(world, shares)
    functions.ready(replica, [loader])
    count = sum(len(pixels) for pixels, _ in trial.shares)
    # From the second epoch on training follows an evaluation, after which it has to switch back.
    predict(functions, replica, once(loader), count)
    loss = take_steps(work, replica, loader, trial.steps)[0]
    after = framework.dump_weights(replica.network)
    logits, _ = predict(functions, replica, once(loader), count)
    functions.stop(replica)
    return loss, after, share_after_share(world, logits)


def with_replica(
    world: World,
    work: Work,
    function: Callable[..., Any],
    arrays: Arrays,
    first_step: int,
    *args: Any,
) -> Any:
    """What ``function(world, work, replica, *args)`` gives, with a replica of its own."""
    functions = work.functions
    replica = functions.start(world, functions.build_model(arrays), first_step=first_step)
    found = function(world, work, replica, *args)
    functions.stop(replica)
    return found


def train(
    world: World,
    work: Work,
    replica: Any,
    begin: checkpoint.Checkpoint,
    report: Callable[[Any], None],
) -> Trained:
    """Let the notebook train all remaining epochs.

    Args:
        begin: the checkpoint to resume from; process 0 writes the next ones, and the weights.
        report: process 0 calls it with each epoch's row, when the epoch has ended, and with a
            ``Within`` every few seconds.
    """
    run = Training(world, work, replica, begin, report)
    work.functions.train(world, replica, run)
    history = run.history
    if len(history) != work.recipe.recipe.epochs:
        raise LoaderError(
            f"train ended after {len(history)} of {work.recipe.recipe.epochs} epochs; let it "
            "iterate over all of run.epochs(...)"
        )
    arrays = work.framework.dump_weights(replica.network)
    if world.rank == 0:
        weights.save(begin.folder / WEIGHTS, arrays, {RUN: begin.run})
    run.writer.close()
    logits = of_each_device(world, work, replica)
    run.close()
    return Trained(
        history,
        run.first_step,
        run.writer.seconds,
        weights.digest(arrays),
        logits,
        observed=run.observer.observed(),
        steps=run.step_seconds,
    )


def of_each_device(world: World, work: Work, replica: Any) -> np.ndarray:
    """The logits of one batch of noise by every device, (devices, images, outputs)."""
    # As many as an evaluation's, for which graphs are compiled.
    count = work.recipe.recipe.batch_size
    loader = work.functions.make_fixed_loader(world, work.noise(world, count))
    logits, _ = predict(work.functions, replica, once(loader), count * world.size)
    return share_after_share(world, logits).reshape(world.size, count, -1)


def test(world: World, work: Work, replica: Any) -> Tested:
    """Logits and mean loss of the test part."""
    work.functions.ready(replica, [])
    loader = work.functions.make_evaluation_loader(world, work.images.test, work.workers)
    images = world.own(len(work.images.test))
    with work.monitor.phase("test", items=images), work.watch(world) as watch:
        count, batches = len(work.images.test), Evaluated(iter(loader))
        scores, loss = predict(work.functions, replica, iter(batches), count, "section 10")
    return Tested(scores, loss, watch.seconds, batches.images(world, work.images, "test"))


def predict(
    functions: TrainingFunctions,
    replica: Any,
    loader: Any,
    total: int,
    what: str = "training-loop check",
) -> tuple[np.ndarray, float]:
    """What the notebook's ``predict`` gives: logits (total, outputs) and the mean loss.

    Args:
        loader: an evaluation's, of all processes' images together ``total``.
        what: the part of the run, for the error's message.

    Raises:
        LoaderError: it gave those of fewer images, or of more.
    """
    with evaluating(what):
        scores, loss = functions.predict(replica, loader, total)
        check_count(scores, total)
    return scores, loss


def measure(world: World, work: Work, replica: Any, steps: int) -> measurement_rounds.Seconds:
    """Section 11's measurements of this process, in rounds.

    Args:
        steps: of a turn, after a first one that is not counted.
    """
    functions, own = work.functions, work.recipe.recipe.batch_size * len(world.devices)
    fixed = functions.make_fixed_loader(world, work.noise(world, work.recipe.recipe.batch_size))
    files = functions.make_train_loader(world, 0, work.workers)
    functions.ready(replica, [fixed, files])
    arriving = functions.load_alone(replica, files)

    def turn(loader: Any, steps: int) -> float:
        return take_steps(work, replica, loader, steps + 1, what="section 11")[1].seconds_a_step

    def no_allreduce(steps: int) -> float:
        with StepClock(work.framework.completion) as clock:
            if functions.without_all_reduce is not None:
                functions.without_all_reduce(replica, fixed, steps + 1, clock)
            elif functions.all_reduce_alone is not None:
                functions.all_reduce_alone(replica, steps + 1, clock)
        return clock.seconds_a_step

    def loader_alone(steps: int) -> float:
        with ending("section 11, loader alone"):
            return measurement_rounds.seconds_a_batch(arriving, work.ahead(world))

    def product(steps: int) -> float:
        return arithmetic.seconds_a_product(world, work.framework, work.recipe.recipe.precision)

    with work.monitor.phase("warm-up"):
        take_steps(work, replica, fixed, 1)
    turns: dict[str, measurement_rounds.Turn] = {
        "files": lambda steps: turn(files, steps),
        "synthetic": lambda steps: turn(fixed, steps),
        "loader": loader_alone,
        measurement_rounds.PRODUCT: product,
    }
    if world.size > 1:
        turns["no_allreduce"] = no_allreduce
    seconds = measurement_rounds.take_turns(work.monitor.phase, turns, steps=steps, images=own)
    if functions.without_all_reduce is None and "no_allreduce" in seconds:
        # What a step takes without what was measured there.
        pairs = zip(seconds["synthetic"], seconds["no_allreduce"], strict=True)
        seconds["no_allreduce"] = [step - reduction for step, reduction in pairs]
    return seconds


def share_after_share(world: World, logits: np.ndarray) -> np.ndarray:
    """What ``predict`` gave where each process had images of its own, one process's after another.

    It takes for granted that a process has every n-th image, as in an evaluation.
    """
    return np.concatenate([logits[n :: world.processes] for n in range(world.processes)])


def once(loader: Any) -> Any:
    """The first batch of an endless loader, for an evaluation; a loader may know how itself."""
    return loader.once() if hasattr(loader, "once") else islice(loader, 1)


def take_steps(
    work: Work,
    replica: Any,
    loader: Any,
    steps: int,
    what: str = "training-loop check",
) -> tuple[float, StepClock]:
    """The mean loss of ``steps`` steps, and their clock; see :func:`epochs.counted_steps`."""
    with counted_steps(work, loader, steps, what=what) as (batches, clock):
        loss = work.functions.train_epoch(replica, batches, steps, clock)
    return loss, clock
