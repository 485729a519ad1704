"""The epochs of a run as a notebook's ``train`` goes through them.

    for epoch in run.epochs(loader, validation):
        with epoch.train() as (batches, clock):
            epoch.loss = train_epoch(replica, batches, epoch.steps, clock)
        with epoch.validate() as batches:
            scores, valid_loss = predict(replica, batches, len(images.valid))
        epoch.log(scores, valid_loss)

``run`` is a :class:`Training`. What surrounds such a loop is here: the monitor's phases, the
clocks, a stop in order, checkpoints, and what the fairness check wants to know of a training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from helpers.errors import LoaderError
from helpers.training import checkpoint, graceful_stop, metrics
from helpers.training.observer import Evaluated, Observer
from helpers.training.partial_epoch import NONE, Part
from helpers.training.step_clock import Observes, StepClock
from helpers.training.work import Work
from helpers.training.world import World


class Within(NamedTuple):
    """How far training is: steps of all epochs, and seconds since this epoch's loop began."""

    steps: int
    seconds: float


class StoppedInEpoch(Exception):
    """The run was asked to stop, and this epoch's steps have ended early; ends ``train``."""


class Training:
    """What a process trains, from the checkpoint on.

    ``epochs_done`` is how many epochs the checkpoint holds, ``workers`` are those of all processes'
    loaders.
    """

    def __init__(
        self,
        world: World,
        work: Work,
        replica: Any,
        begin: checkpoint.Checkpoint,
        agreement: graceful_stop.Agreement,
        report: Callable[[Any], None],
    ) -> None:
        self.world, self.work, self.replica = world, work, replica
        self.begin, self.agreement, self.report = begin, agreement, report
        self.epochs_done, self.workers = begin.epoch, work.workers
        self.whole_steps = work.recipe.steps(len(work.images.train))
        self.taken = begin.epoch * self.whole_steps + begin.part.steps
        self.history, self.first_step, self.part = list(begin.history), begin.first_step, begin.part
        self.step_seconds: list[float] = []
        self.writer = checkpoint.Writer(begin)
        self.permit: graceful_stop.Permit | None = None
        self.observer: Observer
        self._loader: Any = None

    def epochs(self, loader: Any, validation: Any) -> Iterator[Epoch]:
        """The epochs that are left, until the run is asked to stop.

        Args:
            loader: the training batches after ``epochs_done`` epochs, without end.
            validation: gives this process's batches of the validation part each time it is
                iterated; they are read while training runs.
        """
        work, world = self.work, self.world
        scaler = getattr(self.replica, "scaler", None)
        optimizer = self.replica.optimizer
        work.framework.load_optimizer(self.replica.network, optimizer, self.begin.optimizer, scaler)
        self._loader = loader
        work.functions.ready(self.replica, [loader])
        self.permit = permit = self.agreement.of(world.rank, world.processes, self.taken)
        self.observer = Observer(
            world, work, self.replica, self.epochs_done + 1, self.begin.weights
        )
        skip(loader, self.part.steps)  # their images were trained on
        for number in range(self.epochs_done + 1, work.recipe.recipe.epochs + 1):
            if not permit.may_take(self.taken):
                return
            yield Epoch(self, number, loader, Evaluated(iter(validation)))
            if len(self.history) != number:
                raise LoaderError(f"epoch {number}: train did not call epoch.log; let it do so")

    def save(self, part: Part | None = None) -> None:
        """Write a checkpoint, with the epoch's part that was trained before a stop."""
        framework, replica = self.work.framework, self.replica
        scaler = getattr(replica, "scaler", None)
        state = framework.dump_optimizer(replica.network, replica.optimizer, scaler)
        arrays = framework.dump_weights(replica.network)
        self.writer.save(self.history, self.first_step, arrays, state, part)

    def close(self) -> None:
        """End the training loader's workers."""
        if hasattr(self._loader, "close"):
            self._loader.close()
        self._loader = None


class Epoch:
    """One epoch of a training. ``steps`` is how many are left of it, ``loss`` their mean loss."""

    loss: float

    def __init__(self, run: Training, number: int, loader: Any, validation: Evaluated) -> None:
        self.run, self.number = run, number
        self.steps = run.whole_steps - run.part.steps
        self.valid_seconds = 0.0
        self._loader, self._validation = loader, validation

    @contextmanager
    def train(self) -> Iterator[tuple[Any, StepClock]]:
        """The batches of this epoch's steps, and the clock that ``train_epoch`` tells of them.

        Raises:
            StoppedInEpoch: at its end, where the run was asked to stop before the last step.
            LoaderError: more steps were taken, or fewer, so every learning rate would be wrong;
                or a batch has other than the recipe's number of images.
        """
        run, world, work = self.run, self.run.world, self.run.work
        rank = f", rank {world.rank}" if world.processes > 1 else ""
        run.observer.begin(self.number, run.part.steps)
        with (
            work.monitor.phase("train", epoch=self.number, items=self.steps * run.observer.images),
            work.watch(world) as training,
            counted_steps(
                work,
                self._loader,
                self.steps,
                run.permit,
                run.taken,
                f"epoch {self.number}{rank}",
                progress=partial(_within, run.report, run.taken) if world.rank == 0 else None,
                observer=run.observer,
            ) as (batches, clock),
        ):
            yield batches, clock
        run.observer.end()
        if self.number == 1 and run.part.steps == 0:
            run.first_step = clock.first_step_seconds
        waited = work.framework.slowest(clock.data_seconds, world.devices)  # all wait for it
        run.step_seconds += clock.step_seconds
        run.part = run.part.plus(Part(clock.steps, self.loss, training.seconds, waited, 1))
        run.taken += clock.steps
        if run.part.steps < run.whole_steps:
            raise StoppedInEpoch

    @contextmanager
    def validate(self) -> Iterator[Iterator[Any]]:
        """This process's batches of the validation part."""
        run, valid = self.run, self.run.work.images.valid
        own = run.world.own(len(valid))
        with (
            run.work.monitor.phase("validate", epoch=self.number, items=own),
            run.work.watch(run.world) as watch,
            evaluating(f"validation, epoch {self.number}"),
        ):
            yield iter(self._validation)
        self.valid_seconds = watch.seconds

    def log(self, scores: np.ndarray, valid_loss: float) -> None:
        """Write the epoch's row and a checkpoint, and report the row.

        Args:
            scores: logits of the validation part (images, outputs), in its order.
            valid_loss: their mean loss.

        Raises:
            LoaderError: they are those of fewer images, or of more.
        """
        run, work, part = self.run, self.run.work, self.run.part
        images = work.images
        with evaluating(f"validation, epoch {self.number}"):
            check_count(scores, len(images.valid))
        measured = metrics.MODULES[images.task].of_epoch(images.targets(images.valid), scores)
        run.observer.evaluations.append(self._validation.images(run.world, images, "valid"))
        trained = run.whole_steps * work.recipe.global_batch_size
        run.history.append(
            {
                "epoch": self.number,
                "learning_rate": work.framework.learning_rate(run.replica.optimizer),
                "steps": run.whole_steps,
                "images": trained,
                "train_loss": part.loss,
                "train_seconds": part.seconds,
                "images_per_second": trained / part.seconds,
                "valid_loss": valid_loss,
                **measured,
                "valid_seconds": self.valid_seconds,
                "data_seconds": part.data_seconds,
            }
            | ({"attempts": part.attempts} if part.attempts > 1 else {})
        )
        run.part = NONE
        if run.world.rank == 0:
            run.save()
            run.report(run.history[-1])  # its checkpoint is on the way: checkpoint.await_epoch


def _within(report: Callable[[Any], None], before: int, steps: int, seconds: float) -> None:
    report(Within(before + steps, seconds))


@contextmanager
def counted_steps(
    work: Work,
    loader: Any,
    steps: int,
    permit: graceful_stop.Permit | None = None,
    first: int = 0,
    what: str = "training-loop check",
    progress: Callable[[int, float], None] | None = None,
    observer: Observes | None = None,
) -> Iterator[tuple[Any, StepClock]]:
    """The loader and the clock of ``steps`` steps that a notebook's ``train_epoch`` takes.

    Args:
        permit: says up to where; the steps end there, where the loader is a plain iterator, or
            knows itself how. (Others are their framework's own, and make all of the steps.)
        first: the number of the first step, of all epochs together.
        what: the part of the run, for the error's message.
        progress: how far the steps are, now and then (:class:`StepClock`).

    Raises:
        LoaderError: the notebook took more steps, or fewer, so every rate would be wrong.
    """
    if permit is not None and isinstance(loader, Iterator):
        loader = graceful_stop.batches(loader, permit, first, steps)
    elif permit is not None and hasattr(loader, "until"):
        loader.until(permit, first)
    try:
        with StepClock(work.framework.completion, progress, observer) as clock:
            yield loader, clock
    except StopIteration:  # of a loader that is no plain iterator
        raise LoaderError(f"{what}: {graceful_stop.ended(clock.steps, steps)}") from None
    except Exception as error:
        # A framework that reads the loader in a thread raises what happens there as its own error.
        ended = permit.ended if permit is not None else ""
        if not ended and not isinstance(error, LoaderError):
            raise
        raise LoaderError(f"{what}: {ended or error}") from None
    stopped = permit is not None and permit.refused and 0 < clock.steps < steps
    if clock.steps != steps and not stopped:
        raise LoaderError(
            f"{what}: train_epoch took {clock.steps} of {steps} steps; let it take a step for each "
            "batch of islice(loader, steps), call clock.queued once after each step, and let "
            "make_train_loader give batches without end"
        )


@contextmanager
def evaluating(what: str) -> Iterator[None]:
    """Around a notebook's ``predict``, to say in which part of the run it had too few images."""
    try:
        yield
    except LoaderError as error:
        raise LoaderError(
            f"{what}: {error}; make_evaluation_loader must give each image once, and predict "
            "must use all images"
        ) from None


def check_count(scores: np.ndarray, total: int) -> None:
    """See that ``predict`` gave logits of so many images.

    Raises:
        LoaderError: it gave those of fewer, or of more.
    """
    if len(scores) != total:
        raise LoaderError(f"predict returned logits for {len(scores)} of {total} images")


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
