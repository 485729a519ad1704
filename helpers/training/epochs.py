"""The epochs of a run as a notebook's ``train`` goes through them.

    for epoch in run.epochs(loader, validation):
        with epoch.train() as (batches, clock):
            epoch.loss = train_epoch(replica, batches, epoch.steps, clock)
        with epoch.validate() as batches:
            scores, valid_loss = predict(replica, batches, len(images.valid))
        epoch.log(scores, valid_loss)

``run`` is a :class:`Training`. What surrounds such a loop is here: the monitor's phases, the
clocks, checkpoints, and what the fairness check wants to know of a training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from helpers.errors import LoaderError
from helpers.training import checkpoint, metrics
from helpers.training.observer import Evaluated, Observer
from helpers.training.step_clock import Observes, StepClock
from helpers.training.work import Work
from helpers.training.world import World


class Within(NamedTuple):
    """How far training is: steps of all epochs, and seconds since this epoch's loop began."""

    steps: int
    seconds: float


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
        report: Callable[[Any], None],
    ) -> None:
        self.world, self.work, self.replica = world, work, replica
        self.begin, self.report = begin, report
        self.epochs_done, self.workers = begin.epoch, work.workers
        self.history, self.first_step = list(begin.history), begin.first_step
        self.step_seconds: list[float] = []
        self.writer = checkpoint.Writer(begin)
        self.observer: Observer
        self._loader: Any = None

    def epochs(self, loader: Any, validation: Any) -> Iterator[Epoch]:
        """The epochs that are left.

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
        self.observer = Observer(
            world, work, self.replica, self.epochs_done + 1, self.begin.weights
        )
        for number in range(self.epochs_done + 1, work.recipe.recipe.epochs + 1):
            yield Epoch(self, number, loader, Evaluated(iter(validation)))
            if len(self.history) != number:
                raise LoaderError(f"epoch {number}: train did not call epoch.log; let it do so")

    def save(self) -> None:
        """Write a checkpoint."""
        framework, replica = self.work.framework, self.replica
        scaler = getattr(replica, "scaler", None)
        state = framework.dump_optimizer(replica.network, replica.optimizer, scaler)
        arrays = framework.dump_weights(replica.network)
        self.writer.save(self.history, self.first_step, arrays, state)

    def close(self) -> None:
        """End the training loader's workers."""
        if hasattr(self._loader, "close"):
            self._loader.close()
        self._loader = None


class Epoch:
    """One epoch of a training. ``steps`` is how many it has, ``loss`` their mean loss."""

    loss: float

    def __init__(self, run: Training, number: int, loader: Any, validation: Evaluated) -> None:
        self.run, self.number = run, number
        self.steps = run.work.recipe.steps(len(run.work.images.train))
        self.train_seconds = self.valid_seconds = self.data_seconds = 0.0
        self._loader, self._validation = loader, validation

    @contextmanager
    def train(self) -> Iterator[tuple[Any, StepClock]]:
        """The batches of this epoch's steps, and the clock that ``train_epoch`` tells of them.

        Raises:
            LoaderError: more steps were taken, or fewer, so every learning rate would be wrong;
                or a batch has other than the recipe's number of images.
        """
        run, world, work = self.run, self.run.world, self.run.work
        rank = f", rank {world.rank}" if world.processes > 1 else ""
        before = (self.number - 1) * self.steps
        run.observer.begin(self.number)
        with (
            work.monitor.phase("train", epoch=self.number, items=self.steps * run.observer.images),
            work.watch(world) as training,
            counted_steps(
                work,
                self._loader,
                self.steps,
                f"epoch {self.number}{rank}",
                progress=partial(_within, run.report, before) if world.rank == 0 else None,
                observer=run.observer,
            ) as (batches, clock),
        ):
            yield batches, clock
        run.observer.end()
        if self.number == 1:
            run.first_step = clock.first_step_seconds
        run.step_seconds += clock.step_seconds
        # All wait for the slowest.
        self.data_seconds = work.framework.slowest(clock.data_seconds, world.devices)
        self.train_seconds = training.seconds

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
        run, work = self.run, self.run.work
        images = work.images
        with evaluating(f"validation, epoch {self.number}"):
            check_count(scores, len(images.valid))
        measured = metrics.MODULES[images.task].of_epoch(images.targets(images.valid), scores)
        run.observer.evaluations.append(self._validation.images(run.world, images, "valid"))
        trained = self.steps * work.recipe.global_batch_size
        run.history.append(
            {
                "epoch": self.number,
                "learning_rate": work.framework.learning_rate(run.replica.optimizer),
                "steps": self.steps,
                "images": trained,
                "train_loss": self.loss,
                "train_seconds": self.train_seconds,
                "images_per_second": trained / self.train_seconds,
                "valid_loss": valid_loss,
                **measured,
                "valid_seconds": self.valid_seconds,
                "data_seconds": self.data_seconds,
            }
        )
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
    what: str = "training-loop check",
    progress: Callable[[int, float], None] | None = None,
    observer: Observes | None = None,
) -> Iterator[tuple[Any, StepClock]]:
    """The loader and the clock of ``steps`` steps that a notebook's ``train_epoch`` takes.

    Args:
        what: the part of the run, for the error's message.
        progress: how far the steps are, now and then (:class:`StepClock`).

    Raises:
        LoaderError: the notebook took more steps, or fewer, so every rate would be wrong.
    """
    ended = ""

    def batches() -> Iterator[Any]:
        nonlocal ended
        given = 0
        for batch in loader:
            yield batch
            given += 1
        ended = _ended(given, steps)
        raise LoaderError(ended)

    try:
        with StepClock(work.framework.completion, progress, observer) as clock:
            yield batches() if isinstance(loader, Iterator) else loader, clock
    except StopIteration:  # of a loader that is no plain iterator
        raise LoaderError(f"{what}: {_ended(clock.steps, steps)}") from None
    except Exception as error:
        # A framework that reads the loader in a thread raises what happens there as its own error.
        if not ended and not isinstance(error, LoaderError):
            raise
        raise LoaderError(f"{what}: {ended or error}") from None
    if clock.steps != steps:
        raise LoaderError(
            f"{what}: train_epoch took {clock.steps} of {steps} steps; let it take a step for each "
            "batch of islice(loader, steps), call clock.queued once after each step, and let "
            "make_train_loader give batches without end"
        )


def _ended(given: int, steps: int) -> str:
    """Why a training whose loader has ended cannot continue."""
    return (
        f"the training loader gave {given} of {steps} batches; let make_train_loader give batches "
        "without end"
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
