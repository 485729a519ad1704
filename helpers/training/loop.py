"""What a process does around a notebook's own loop: epochs, phases, batches, log and test."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np

from helpers.errors import LoaderError, UserError
from helpers.fairness import process_checks, training_checks
from helpers.fairness.check_results import Check, FairnessCheck
from helpers.networks import weights
from helpers.record import run_identity, sections
from helpers.training import (
    after_training,
    checkpoint,
    image_data,
    launching,
    metrics,
    notebook_recipe,
    showing,
)
from helpers.training.epoch_lines import Within
from helpers.training.image_data import Data
from helpers.training.run_state import RunState
from helpers.training.step_clock import StepClock
from helpers.training.training_notes import EvaluationNotes, RepeatNotes, TrainingNotes, Watching

WEIGHTS, RUN = "weights.safetensors", "run"
"""Their file, and what its metadata calls the id of the run that trained them."""
METRIC = "metric as the notebook computes it"
MOST_APART = 1e-6
"""Between a metric of the notebook and the recipe's."""


class Loop:
    """A process's notes while it trains; ``seconds`` are those of the last phase by name.

    ``predict`` is the notebook's, from ``run.check``; ``repeat`` has the notes of a measurement.
    """

    clock: StepClock
    notes: TrainingNotes
    evaluation: EvaluationNotes

    def __init__(self, run: RunState) -> None:
        self.run = run
        self.fairness = FairnessCheck(())
        self.history: list[dict[str, Any]] = []
        self.seconds: dict[str, float] = {}
        self.predict: Any = None
        self.first_step = self._data_seconds = float("nan")
        self.trained = False
        self._step_seconds: list[float] = []
        self._epoch, self.phase_now = 0, ""
        self.repeat: RepeatNotes | None = None

    @cached_property
    def images(self) -> Data:
        """The images themselves, whatever the notebook's names hold by now."""
        return image_data.load_data(self.run.setup.recipe.recipe, self.run.setup.data)

    @cached_property
    def processes(self) -> int:
        """How many processes train; the first to ask has to be all of them.

        Raises:
            LoaderError: the launched processes have not joined.
        """
        found, started = len(self.run.gather(None)), self.run.setup.replicas
        if self.run.launched and found != started:
            raise LoaderError(
                f"{found} of {started} processes joined; let main join them all before run.check, "
                "in PyTorch by dist.init_process_group(run.backend)"
            )
        return found

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """See :meth:`helpers.run.Run.phase`."""
        run = self.run
        each = self.processes
        items = {
            "train": run.recipe.steps * run.recipe.batch_size * run.setup.replicas // each,
            "validate": len(range(run.rank, len(run.valid_split), each)),
            "test": len(range(run.rank, len(run.test_split), each)),
        }
        about = {"epoch": self._epoch} if name in ("train", "validate") else {}
        about |= {"items": items[name]} if name in items else {}
        self.phase_now = name
        when = "in the test" if name == "test" else f"in the validation of epoch {self._epoch}"
        self.evaluation = EvaluationNotes(lambda: self.notes.look(when))
        if name == "train":
            kept = run.start.epoch + 1, run.recipe.epochs  # the epochs of which crops are kept
            self.notes.begin(self._epoch, keep=self._epoch in kept)
        try:
            with (
                launching.ends_in_order(run),
                launching.memory_explained(run.setup.recipe.recipe),
                run.monitor.phase(name, **about),
            ):
                run.framework.synchronize(run.own_devices)  # here and at the end, and only there
                start = time.perf_counter()
                yield
                run.framework.synchronize(run.own_devices)
                self.seconds[name] = time.perf_counter() - start
        except BaseException as error:
            if "clock" in vars(self):  # a function that failed has not left it
                self.clock.__exit__(type(error), error, error.__traceback__)
            raise
        finally:
            self.phase_now = ""
        if name == "train":
            self.notes.end()
            if self._epoch == 1:
                self.first_step = self.clock.first_step_seconds
            self._step_seconds += self.clock.step_seconds
            self._data_seconds = self.clock.data_seconds

    def watch(self, batches: Iterable[Any]) -> Any:
        """See :meth:`helpers.run.Run.watch`."""
        framework = self.run.framework
        if hasattr(framework, "watched"):  # its own function reads them
            return framework.watched(batches, Watching(self))
        return self._iterated(batches)

    def _iterated(self, batches: Iterable[Any]) -> Iterator[Any]:
        with Watching(self) as watching:
            for batch in batches:
                watching.batch(batch, time.perf_counter())
                yield batch
                watching.step()

    def within(self, steps: int, seconds: float) -> None:
        """Tell how far the epoch is."""
        before = (self._epoch - 1) * self.run.recipe.steps
        self.run.tell(showing.progress, Within(before + steps, seconds))

    @property
    def typical_step(self) -> float:
        """Seconds of a step in training: the median, without the first of each epoch.

        The last epoch's mean where no epoch of this process had two steps.
        """
        last = self.history[-1]
        return median(self._step_seconds or [last["train_seconds"] / last["steps"]])

    def log(self, loss: float, scores: np.ndarray, metric: float) -> None:
        """See :meth:`helpers.run.Run.log`."""
        run = self.run
        if missing := [name for name in ("train", "validate") if name not in self.seconds]:
            raise LoaderError(f'epoch {self._epoch} has no block: with run.phase("{missing[0]}")')
        measured, valid_loss = self._measured("valid", scores, metric)
        images = run.recipe.steps * run.recipe.batch_size * run.setup.replicas
        rates = self.notes.rates
        self.history.append(
            {
                "epoch": self._epoch,
                "learning_rate": rates[-1][1] if rates else 0.0,
                "steps": run.recipe.steps,
                "images": images,
                "train_loss": float(loss),
                "train_seconds": self.seconds["train"],
                "images_per_second": images / self.seconds["train"],
                "valid_loss": valid_loss,
                **measured,
                "valid_seconds": self.seconds["validate"],
                # All wait for the slowest.
                "data_seconds": max(run.gather(self._data_seconds)),
            }
        )
        if run.rank == 0:
            replica = self.notes.replica
            state = run.framework.dump_optimizer(replica)
            arrays = run.framework.dump_weights(replica.network)
            self.writer.save(self.history, self.first_step, arrays, state)
            run.tell(showing.progress, self.history[-1])

    def _measured(
        self, name: str, scores: np.ndarray, metric: float
    ) -> tuple[dict[str, float], float]:
        """The recipe's metrics and the loss of a split; its images and the notebook's are noted."""
        run, split = self.run, notebook_recipe.split(self.images, name)
        if len(scores) != len(split):
            raise LoaderError(
                f"{len(scores)} scores of {len(split)} images; let the evaluation's loader give "
                "each image once, and predict use all"
            )
        notes = self.evaluation.evaluation(name, split, run, self.processes)
        self.notes.evaluations.append(notes)
        found = metrics.of_epoch(split.targets, scores)
        own = next(iter(found.values()))
        both_none = np.isnan(own) and np.isnan(metric)
        self.notes.metrics.append(0.0 if both_none else abs(float(metric) - own))
        return found, process_checks.mean_loss(scores.astype(np.float64), split.targets)

    def test(self, scores: np.ndarray, metric: float) -> None:
        """See :meth:`helpers.run.Run.test`."""
        run, images = self.run, self.images
        self.check_trained("run.test")
        run.tell(showing.remove, "test", "attribution")
        if "test" not in self.seconds:
            raise LoaderError('run.test needs a block before it: with run.phase("test")')
        _, loss = self._measured("test", scores, metric)
        each = run.gather((self.notes.evaluations, self.notes.moments, max(self.notes.metrics)))
        if run.rank:
            return
        observed = [
            replace(one, evaluations=own, moments=moments)
            for one, (own, moments, _) in zip(self._observed, each, strict=True)
        ]
        apart = max(metric for *_, metric in each)
        variant = f"metric (by {apart:.3g} another)"
        row = Check(METRIC, apart, MOST_APART, "of each epoch and the test", variant=variant)
        self.updated([*training_checks.evaluated(observed), row])
        targets = images.targets(images.test)
        sample = run_identity.images(images.test, images.classes)
        groups = images.test["group"]
        result = metrics.evaluate(targets, scores, groups, images.classes, sample)
        more = {"loss": loss, "seconds": self.seconds["test"]}
        run.tell(showing.add, "test", result | more)
        run.tell(showing.tested, result)

    def check_trained(self, what: str) -> None:
        """Check that a training with these parameters has ended.

        Raises:
            UserError: there is none, or a parameter was changed since.
        """
        if not self.run.launched:  # else the launch has looked at them
            self.run.check_parameters()
        if not self.trained:
            raise UserError(
                f"{what} needs run.epochs, which did not run to the end: run the training cell "
                "first"
            )

    def updated(self, checks: list[Check], seconds: float = 0.0) -> None:
        """Take these rows into the fairness check, and record it."""
        self.fairness = self.fairness.updated(checks, seconds)
        self.run.tell(showing.add, "fairness", self.fairness.as_record())

    def epochs(self, replica: Any) -> Iterator[int]:
        """See :meth:`helpers.run.Run.epochs`."""
        run, start, framework = self.run, self.run.start, self.run.framework
        self.history, self.first_step = list(start.history), start.first_step
        self.writer = checkpoint.Writer(start)
        if start.epoch:
            framework.load_weights(replica.network, start.weights)
            steps = start.epoch * run.recipe.steps
            framework.load_optimizer(replica, start.optimizer, steps)
        self.notes = TrainingNotes(run, replica, self.processes, start.weights)
        with run.others.during("epochs"):
            for number in range(start.epoch, run.recipe.epochs):
                self._epoch = number + 1
                yield number
                if len(self.history) != self._epoch:
                    said = f"epoch {self._epoch} ended without run.log(loss, scores, metric)"
                    raise LoaderError(said)
        with launching.ends_in_order(run):
            self._end(replica)

    def _end(self, replica: Any) -> None:
        """Save the weights, and check the training that has ended."""
        run, framework = self.run, self.run.framework
        self.notes.look("in the saved file")
        arrays = framework.dump_weights(replica.network)
        if run.rank == 0:
            weights.save(run.folder / WEIGHTS, arrays, {RUN: run.start.run})
        self.writer.close()
        logits = None
        if self.predict is not None:
            logits = after_training.of_each_device(run, self.predict, replica)
        each = run.gather((weights.digest(arrays), logits, self.notes.observed()))
        self.trained = True
        if run.rank:
            return
        digests, known, self._observed = zip(*each, strict=True)
        checks = after_training.checks(run, digests, known, self._observed)
        self.updated(checks)
        run.tell(showing.say, after_training.in_words(checks))
        run.tell(showing.add, "epochs", self.history)
        said = sections.training(self.history, self.first_step, run.start.epoch)
        said |= after_training.as_record(self._observed, self._step_seconds)
        run.tell(showing.add, "training", said)
        run.tell(showing.add, "checkpoint", run.start.as_record(self.writer.seconds))
        run.tell(showing.trained, self.history, after_training.held(run, self._observed))
