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

from helpers.errors import LoaderError
from helpers.fairness import process_checks, training_checks, training_loop
from helpers.fairness.check_results import Check, FairnessCheck
from helpers.fairness.observed import Observed, first_batches
from helpers.networks import weights
from helpers.record import run_identity, sections
from helpers.training import checkpoint, image_data, launching, metrics, notebook_recipe, showing
from helpers.training.image_data import Data
from helpers.training.run_state import RunState
from helpers.training.training_notes import EvaluationNotes, TrainingNotes, Watching

METRIC = "metric as the notebook computes it"
MOST_APART = 1e-6
"""Between a metric of the notebook and the recipe's."""


class Loop:
    """A process's notes while it trains; ``seconds`` are those of the last phase by name."""

    clock: Watching
    notes: TrainingNotes
    evaluation: EvaluationNotes
    _observed: tuple[Observed, ...]

    def __init__(self, run: RunState) -> None:
        self.run = run
        self.fairness = FairnessCheck(())
        self.history: list[dict[str, Any]] = []
        self.seconds: dict[str, float] = {}
        self.predict: Any = None
        self.first_step = self._data_seconds = float("nan")
        self._step_seconds: list[float] = []
        self._epoch, self.phase_now = 0, ""

    @cached_property
    def images(self) -> Data:
        """The images themselves, whatever the notebook's names hold by now."""
        return image_data.load_data(self.run.setup.recipe.recipe, self.run.setup.data)

    @cached_property
    def processes(self) -> int:
        """How many processes train; raises LoaderError where the launched have not joined."""
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
        self.evaluation = EvaluationNotes(look=lambda: self.notes.look(when))
        if name == "train":
            kept = run.start.epoch + 1, run.recipe.epochs  # the epochs of which crops are kept
            self.notes.begin(self._epoch, keep=self._epoch in kept)
        try:
            with launching.explained(run), run.monitor.phase(name, **about):
                run.framework.synchronize(run.own_devices)  # here and at the end, and only there
                start = time.perf_counter()
                yield
                run.framework.synchronize(run.own_devices)
                self.seconds[name] = time.perf_counter() - start
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

    def within(self, steps: int) -> None:
        """Tell how far the epoch is."""
        before = (self._epoch - 1) * self.run.recipe.steps
        self.run.tell(showing.progress, before + steps)

    @property
    def typical_step(self) -> float:
        """The median seconds of a step, without the first of each epoch if there are others."""
        last = self.history[-1]
        return median(self._step_seconds or [last["train_seconds"] / last["steps"]])

    def log(self, loss: float, scores: np.ndarray, metric: float) -> None:
        """See :meth:`helpers.run.Run.log`."""
        run = self.run
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
            checkpoint.save(run.start, self.history, self.first_step, arrays, state)
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
        none = np.isnan(own) and np.isnan(metric)
        self.notes.metrics.append(0.0 if none else abs(float(metric) - own))
        return found, process_checks.mean_loss(scores.astype(np.float64), split.targets)

    def test(self, scores: np.ndarray, metric: float) -> None:
        """See :meth:`helpers.run.Run.test`."""
        run, images = self.run, self.images
        run.tell(showing.remove, "test", "attribution")
        self._measured("test", scores, metric)
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
        run.tell(showing.add, "test", result)
        run.tell(showing.tested, result)

    def updated(self, checks: list[Check]) -> None:
        """Take these rows into the fairness check, and record it."""
        self.fairness = self.fairness.updated(checks)
        self.run.tell(showing.add, "fairness", self.fairness.as_record())

    def epochs(self, replica: Any) -> Iterator[int]:
        """See :meth:`helpers.run.Run.epochs`."""
        run, start, framework = self.run, self.run.start, self.run.framework
        self.history, self.first_step = list(start.history), start.first_step
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
                    raise LoaderError(f"epoch {self._epoch} ended without run.log(...)")
        with launching.explained(run):
            self._end(replica)

    def _end(self, replica: Any) -> None:
        """Save the weights, and check the training that has ended."""
        run = self.run
        self.notes.look("in the saved file")
        arrays = run.framework.dump_weights(replica.network)
        if run.rank == 0:
            weights.save(run.folder / "weights.safetensors", arrays, {"run": run.start.run})
        logits = self._of_each_device(replica) if self.predict is not None else None
        each = run.gather((weights.digest(arrays), logits, self.notes.observed()))
        if run.rank:
            return
        digests, each_logits, self._observed = zip(*each, strict=True)
        recipe, images, cpus = run.setup.recipe, len(run.train_split), run.setup.of_all_nodes.cpus
        checks = training_checks.check_fairness(
            self._observed, recipe, images, on_gpu=run.on_gpu, cpus=cpus
        )
        if self.predict is not None:
            limit = training_loop.LIMITS[run.recipe.precision].values
            world = run.setup.replicas
            checks = process_checks.after_training(digests, each_logits, world, limit) + checks
        self.updated(checks)
        run.tell(showing.table, FairnessCheck(tuple(checks)).table())
        run.tell(showing.add, "epochs", self.history)
        training = sections.training(self.history, self.first_step, run.start.epoch)
        training["execution"] = self._observed[0].seen.execution
        training["first_batches"] = first_batches(self._observed)
        if steps := self._step_seconds:
            extremes = {"minimum": min(steps), "maximum": max(steps)}
            training["step_seconds"] = {"median": median(steps), **extremes}
        run.tell(showing.add, "training", training)
        run.tell(showing.add, "checkpoint", run.start.as_record())
        if run.on_gpu:  # of which the driver tells where no pool does
            pooled = (each.pooled for each in self._observed if each.pooled is not None)
            held = max(pooled, default=None)
        else:
            most = max(each.resident for each in self._observed)
            held = most * len(self._observed) // run.setup.replicas
        run.tell(showing.trained, self.history, held)

    def _of_each_device(self, replica: Any) -> np.ndarray:
        """Every device's logits for one batch of noise, (devices, images, outputs)."""
        run, r, world = self.run, self.run.recipe, self.run.setup.replicas
        count, own = r.batch_size, world // self.processes
        shape = (count, r.crop, r.crop, run.images.recipe.planes)
        pixels = np.random.default_rng(r.seed).integers(0, 256, shape, dtype=np.uint8)
        targets = np.zeros_like(run.train_split.targets[:1]).repeat(count, axis=0)
        numbers = run.rank * own * count + np.arange(own * count)
        batch = run.framework.as_loaded(
            np.concatenate([pixels] * own), np.concatenate([targets] * own), numbers
        )
        found: np.ndarray = np.asarray(self.predict(replica, [batch], world * count))
        return found.reshape(world, count, -1)
