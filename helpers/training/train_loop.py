"""The work of every process of a run, the same in all frameworks: epochs, test, measurements.

``helpers.training.measured_run`` calls these where the replicas live: in the notebook's own
process, in a child, or in a process for each device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import gpumon
from helpers.errors import LoaderError
from helpers.fairness.training_checks import Evaluation, Observed
from helpers.fairness.training_loop import Trial
from helpers.frameworks import rank_info
from helpers.launch import clocks
from helpers.networks import weights
from helpers.networks.weights import Arrays
from helpers.recipe import ScaledRecipe
from helpers.training import (
    arithmetic,
    bus_bandwidth,
    checkpoint,
    graceful_stop,
    measurement_rounds,
    metrics,
    step_parts,
)
from helpers.training.image_data import Data
from helpers.training.observer import Evaluated, Observer
from helpers.training.partial_epoch import NONE, Part
from helpers.training.step_clock import StepClock
from helpers.training.stopwatch import Stopwatch
from helpers.training.world import Share, TrainingFunctions, World

WEIGHTS = "weights.safetensors"
RUN = "run"
"""What their file's metadata calls the id of the run that trained them."""


@dataclass(frozen=True)
class Work:
    """What a process has to know to do its part."""

    framework: ModuleType
    functions: TrainingFunctions
    images: Data
    recipe: ScaledRecipe
    workers: int
    monitor: gpumon.Monitor

    def watch(self, world: World) -> Stopwatch:
        """A stopwatch that waits for this process's devices at its ends."""
        return Stopwatch(lambda: self.framework.synchronize(world.devices))

    def ahead(self, world: World) -> int:
        """Batches that this process's training loader may have ready."""
        ahead = self.functions.read_ahead
        return ahead * -(-self.workers // world.processes) if ahead > 0 else -ahead

    def noise(self, world: World, size: int) -> list[Share]:
        """``size`` images of noise, without findings or of the first class, for each own device."""
        random = np.random.default_rng(self.recipe.recipe.seed)
        shape = (size, self.recipe.recipe.crop, self.recipe.recipe.crop, self.images.planes)
        pixels = random.integers(0, 256, shape, dtype=np.uint8)
        targets = np.zeros_like(self.images.targets(self.images.train[:1])).repeat(size, axis=0)
        return [(pixels, targets)] * len(world.devices)


@dataclass(frozen=True)
class Trained:
    """What training leaves: the epochs' rows, and seconds."""

    history: list[dict[str, Any]]
    first_step: float
    stalled: float
    """For how long writing checkpoints held training up."""
    digest: str
    """Of this process's weights."""
    logits: np.ndarray
    """What each of all devices makes of the same images, (devices, images, outputs)."""
    parts: step_parts.Parts | None = None
    """Of a step of the last epoch, in this process; None where it trained none."""
    stopped: Part | None = None
    """Of a training that was stopped: what it has of the epoch after the last; else None."""
    observed: Observed | None = None
    """What this process noted of it; None of a training that was stopped."""


class Tested(NamedTuple):
    """What the test leaves: logits (images, outputs), mean loss, seconds, and its own images."""

    scores: np.ndarray
    loss: float
    seconds: float
    evaluation: Evaluation


class Within(NamedTuple):
    """How far training is: steps of all epochs, and seconds since this epoch's loop began."""

    steps: int
    seconds: float


class StepMeasurements(NamedTuple):
    """What section 11 measures in a process."""

    seconds: measurement_rounds.Seconds
    all_reduce: bus_bandwidth.Measured | None = None
    """On ranks: of the gradients alone."""
    meetings: clocks.Meetings | None = None
    """Over several machines: the data from which the difference of their clocks follows."""


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


def attempt(world: World, work: Work, arrays: Arrays, size: int) -> None:
    """One step with ``size`` images per device, to see whether they fit into its memory.

    Args:
        arrays: the weights to begin with.
    """
    functions = work.functions
    replica = functions.start(world, functions.build_model(arrays))
    try:
        loader = functions.make_fixed_loader(world, work.noise(world, size))
        functions.ready(replica, [loader])
        take_steps(work, replica, loader, 1)
    finally:
        functions.stop(replica)


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
    agreement: graceful_stop.Agreement,
    report: Callable[[Any], None],
) -> Trained:
    """Train all remaining epochs, or until the run is asked to stop.

    Args:
        begin: the checkpoint to resume from; process 0 writes the next ones, and the weights.
        agreement: by which all processes stop after the same step.
        report: process 0 calls it with each epoch's row, when the epoch has ended, and with a
            ``Within`` every few seconds.
    """
    functions, framework, monitor = work.functions, work.framework, work.monitor
    scaler = getattr(replica, "scaler", None)
    framework.load_optimizer(replica.network, replica.optimizer, begin.optimizer, scaler)
    writer = checkpoint.Writer(begin)
    loader = functions.make_train_loader(world, begin.epoch, work.workers)
    functions.ready(replica, [loader])
    validation = functions.make_evaluation_loader(world, work.images.valid, work.workers)
    steps = work.recipe.steps(len(work.images.train))
    batch = work.recipe.recipe.batch_size * len(world.devices)  # images of this process
    history, first_step, part = list(begin.history), begin.first_step, begin.part
    taken = begin.epoch * steps + part.steps
    permit = agreement.of(world.rank, world.processes, taken)
    observer = Observer(world, work, replica, begin.epoch + 1, begin.weights)
    skip(loader, part.steps)  # their images were trained on
    parts: step_parts.Parts | None = None
    for epoch in range(begin.epoch + 1, work.recipe.recipe.epochs + 1):
        if not permit.may_take(taken):
            break
        batches = Evaluated(iter(validation))  # read while training runs
        left = steps - part.steps
        observer.begin(epoch, part.steps)
        with (
            monitor.phase("train", epoch=epoch, items=left * batch),
            work.watch(world) as training,
        ):
            train_loss, clock = take_steps(
                work,
                replica,
                loader,
                left,
                permit,
                taken,
                f"epoch {epoch}",
                progress=partial(within, report, taken) if world.rank == 0 else None,
                observer=observer,
            )
        observer.end()
        if epoch == 1 and part.steps == 0:
            first_step = clock.first_step_seconds
        # All wait for the slowest.
        waited = framework.slowest(clock.data_seconds, world.devices)
        seconds, synced = training.seconds, functions.sync_seconds(replica)
        parts = step_parts.of_epoch(clock, synced)
        said = None if synced is None else float(synced)
        part = part.plus(Part(clock.steps, train_loss, seconds, waited, said, 1))
        taken += clock.steps
        if part.steps < steps:
            break
        seen = own_images(world, work.images.valid)
        with monitor.phase("validate", epoch=epoch, items=seen), work.watch(world) as validating:
            count, what = len(work.images.valid), f"validation, epoch {epoch}"
            scores, valid_loss = predict(functions, replica, iter(batches), count, what)
            targets = work.images.targets(work.images.valid)
            measured = metrics.of_epoch(work.images.task, targets, scores)
        observer.evaluations.append(batches.images(world, work.images, "valid"))
        history.append(
            {
                "epoch": epoch,
                "learning_rate": framework.learning_rate(replica.optimizer),
                "steps": steps,
                "images": steps * work.recipe.global_batch_size,
                "train_loss": part.loss,
                "train_seconds": part.seconds,
                "images_per_second": steps * work.recipe.global_batch_size / part.seconds,
                "valid_loss": valid_loss,
                **measured,
                "valid_seconds": validating.seconds,
                "data_seconds": part.data_seconds,
                "communication_seconds": part.communication_seconds,
            }
            | ({"attempts": part.attempts} if part.attempts > 1 else {})
        )
        part = NONE
        if world.rank == 0:
            state = framework.dump_optimizer(replica.network, replica.optimizer, scaler)
            arrays = framework.dump_weights(replica.network)
            writer.save(history, first_step, arrays, state)
            report(history[-1])  # once its checkpoint is on the way: see checkpoint.await_epoch
    if permit.refused and part.steps and world.rank == 0:
        state = framework.dump_optimizer(replica.network, replica.optimizer, scaler)
        writer.save(history, first_step, framework.dump_weights(replica.network), state, part)
    if permit.refused:
        writer.close()
        return Trained(history, first_step, writer.seconds, "", np.zeros(0), stopped=part)
    if world.rank == 0:
        arrays = framework.dump_weights(replica.network)
        weights.save(begin.folder / WEIGHTS, arrays, {RUN: begin.run})
    writer.close()
    digest = weights.digest(framework.dump_weights(replica.network))
    logits = of_each_device(world, work, replica)
    if hasattr(loader, "close"):
        loader.close()
    del loader  # with which its workers end
    observed = observer.observed()
    return Trained(history, first_step, writer.seconds, digest, logits, parts, observed=observed)


def within(report: Callable[[Any], None], before: int, steps: int, seconds: float) -> None:
    """Report how far an epoch is.

    Args:
        report: to whom.
        before: the steps of all epochs before those that are counted here.
        steps: that are done since.
        seconds: since the epoch's loop began.
    """
    report(Within(before + steps, seconds))


def of_each_device(world: World, work: Work, replica: Any) -> np.ndarray:
    """The logits of one batch of noise by every device, (devices, images, outputs)."""
    count = (
        work.recipe.recipe.batch_size
    )  # as many as an evaluation's, for which graphs are compiled
    loader = work.functions.make_fixed_loader(world, work.noise(world, count))
    logits, _ = predict(work.functions, replica, once(loader), count * world.size)
    return share_after_share(world, logits).reshape(world.size, count, -1)


def test(world: World, work: Work, replica: Any) -> Tested:
    """Logits and mean loss of the test part."""
    work.functions.ready(replica, [])
    loader = work.functions.make_evaluation_loader(world, work.images.test, work.workers)
    images = own_images(world, work.images.test)
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
        notebook's functions: the notebook's.
        replica: what predicts.
        loader: an evaluation's, of all processes' images together ``total``.
        total: how many images.
        what: the part of the run, for the error's message.

    Raises:
        LoaderError: it gave those of fewer images, or of more.
    """
    try:
        scores, loss = functions.predict(replica, loader, total)
        if len(scores) != total:
            raise LoaderError(f"predict gave logits of {len(scores)} of {total} images")
    except LoaderError as error:
        raise LoaderError(
            f"{what}: {error}; make_evaluation_loader has to give each image once, and predict "
            "has to use all of them"
        ) from None
    return scores, loss


def measure(world: World, work: Work, replica: Any, steps: int) -> StepMeasurements:
    """Section 11's measurements of this process, in rounds; over several nodes, of their network.

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
    seconds = measurement_rounds.take_turns(
        work.monitor.phase,
        steps=steps,
        images=own,
        files=lambda steps: turn(files, steps),
        synthetic=lambda steps: turn(fixed, steps),
        no_allreduce=no_allreduce if world.size > 1 else None,
        loader=loader_alone,
        product=product,
    )
    if functions.without_all_reduce is None and "no_allreduce" in seconds:
        # What a step takes without what was measured there.
        pairs = zip(seconds["synthetic"], seconds["no_allreduce"], strict=True)
        seconds["no_allreduce"] = [step - reduction for step, reduction in pairs]
    if rank_info.here() is None:
        return StepMeasurements(seconds)
    with work.monitor.phase("all-reduce alone"):
        all_reduce = bus_bandwidth.measure(world, work.framework, replica)
    if world.nodes == 1 or world.simulated_nodes:
        return StepMeasurements(seconds, all_reduce)
    meetings = clocks.meet(lambda: work.framework.slowest(0.0, world.devices))
    return StepMeasurements(seconds, all_reduce, meetings)


def share_after_share(world: World, logits: np.ndarray) -> np.ndarray:
    """What ``predict`` gave where each process had images of its own, one process's after another.

    It takes for granted that a process has every n-th image, as in an evaluation.
    """
    return np.concatenate([logits[n :: world.processes] for n in range(world.processes)])


def own_images(world: World, part: pd.DataFrame) -> int:
    """How many of a part's images this process evaluates, with every n-th its own."""
    return len(range(world.rank, len(part), world.processes))


def skip(loader: Any, batches: int) -> None:
    """Leave out the next batches of an endless loader; a loader may know how itself."""
    if hasattr(loader, "skip"):
        loader.skip(batches)
        return
    with ending("the batches that a resumed run skips"):
        for _ in range(batches):
            next(loader)


@contextmanager
def ending(what: str) -> Iterator[None]:
    """Around ``next`` of a training loader.

    Raises:
        LoaderError: the loader has ended.
    """
    try:
        yield
    except StopIteration:
        raise LoaderError(
            f"{what}: the training loader ended; let make_train_loader give batches without end"
        ) from None


def once(loader: Any) -> Any:
    """The first batch of an endless loader, for an evaluation; a loader may know how itself."""
    return loader.once() if hasattr(loader, "once") else islice(loader, 1)


def take_steps(
    work: Work,
    replica: Any,
    loader: Any,
    steps: int,
    permit: graceful_stop.Permit | None = None,
    first: int = 0,
    what: str = "training-loop check",
    progress: Callable[[int, float], None] | None = None,
    observer: Observer | None = None,
) -> tuple[float, StepClock]:
    """The mean loss of ``steps`` steps, and their clock.

    Args:
        work: what the process knows.
        replica: what trains.
        loader: that of the batches.
        steps: how many.
        permit: says up to where; the steps end there, where the loader is a plain iterator, or
            knows itself how. (Others are their framework's own, and make all of the steps.)
        first: the number of the first step, of all epochs together.
        what: the part of the run, for the error's message.
        progress: how far the steps are, now and then (:class:`StepClock`).
        observer: notes what the steps are taken on, and how.

    Raises:
        LoaderError: the notebook took more steps, or fewer, so every rate would be wrong.
    """
    if permit is not None and isinstance(loader, Iterator):
        loader = graceful_stop.batches(loader, permit, first)
    elif permit is not None and hasattr(loader, "until"):
        loader.until(permit, first)
    try:
        with StepClock(work.framework.completion, progress, observer) as clock:
            loss = work.functions.train_epoch(replica, loader, steps, clock)
    except LoaderError as error:
        raise LoaderError(
            f"{what}: {error} of {steps} batches; let make_train_loader give batches without end"
        ) from None
    stopped = permit is not None and permit.refused and 0 < clock.steps < steps
    if clock.steps != steps and not stopped:
        raise LoaderError(
            f"{what}: train_epoch took {clock.steps} of {steps} steps; let it take a step for each "
            "batch of islice(loader, steps), call clock.queued once after each step, and let "
            "make_train_loader give batches without end"
        )
    return loss, clock
