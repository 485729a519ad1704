"""What a process notes of its training and its evaluations, batch by batch.

A batch brings the numbers of its images, so everything that was trained on can be compared with
the tables: labels, order, and, for the first batches of the first and the last epoch, the crops.
Nothing waits for a device.
"""

from __future__ import annotations

import hashlib
import resource
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from helpers.errors import LoaderError
from helpers.fairness import crops, training_checks
from helpers.fairness.training_checks import Epoch, Evaluation, Observed
from helpers.frameworks import cpu_cores, switches
from helpers.networks.shapes import RUNNING
from helpers.networks.weights import Arrays
from helpers.training import batch_arrays
from helpers.training.notebook_recipe import Part

if TYPE_CHECKING:
    from helpers.training.run_state import RunState

MOST_PIXELS = 512
"""Images of an epoch of which a process keeps the crops, or of its first batch if that has more."""
FILLED = -1
"""The number of what is no image: it fills a batch of an evaluation up to its size."""


def parts_of(batch: Any) -> tuple[Any, Any, Any]:
    """Pixels, targets and numbers of a batch, wherever they are.

    Raises:
        LoaderError: the batch has other parts.
    """
    if not isinstance(batch, tuple | list) or len(batch) != 3:
        raise LoaderError(
            "run.watch: a batch must be pixels, targets and the images' numbers; let the dataset "
            "return all three"
        )
    pixels, targets, numbers = batch
    return pixels, targets, numbers


def joined(parts: Iterable[Any]) -> np.ndarray:
    """The same part of several batches, in memory."""
    return np.concatenate([batch_arrays.in_memory(each) for each in parts])


class TrainingNotes:
    """What one process trained on, and how."""

    def __init__(self, run: RunState, replica: Any, processes: int, start: Arrays) -> None:
        self.run, self.replica = run, replica
        self.watch = run.framework.watch(replica)
        self.images = run.recipe.batch_size * run.setup.replicas // processes
        """How many this process trains on in each step."""
        held = run.framework.dump_weights(replica.network)
        self.others = training_checks.other_arrays(held, start)
        self.weights: int | None = None
        """How many numbers are to be trained; None where no reference knows the network."""
        if run.recipe.network != "own":
            trained = (array for name, array in start.items() if not name.endswith(RUNNING))
            self.weights = sum(array.size for array in trained)
        self.rates: list[tuple[int, float]] = []
        self.epochs: list[Epoch] = []
        self.evaluations: list[Evaluation] = []
        self.metrics: list[float] = []
        self.numbers: dict[int, np.ndarray] = {}
        self.pixels: dict[int, list[Any]] = {}
        self.misplaced = 0
        self._taken = 0
        self._labels: list[Any] = []
        self._numbers: list[Any] = []

    def begin(self, epoch: int, *, keep: bool) -> None:
        """Epoch number ``epoch``, from 1, begins; whether crops are kept of it."""
        self._epoch, self._keep, self._taken = epoch, keep, 0
        self._labels, self._numbers, self.pixels[epoch] = [], [], []

    def batch(self, batch: Any) -> None:
        """The loop is going to take a step on this batch.

        Raises:
            LoaderError: it has other than the recipe's number of images. A mean over the ranks
                would be wrong, and some frameworks would wait for ever for a rank's other shape.
        """
        pixels, targets, numbers = parts_of(batch)
        if (images := batch_arrays.own_length(numbers)) != self.images:
            raise LoaderError(
                f"batch {self._taken + 1} of {self.run.recipe.steps} has {images} images, "
                f"not {self.images}; let the training loader give {self.images} in each batch"
            )
        kept = self.pixels[self._epoch]
        if self._keep and len(kept) * self.images < MOST_PIXELS:
            kept.append(batch_arrays.kept(pixels))
        self._labels.append(batch_arrays.kept(targets))
        self._numbers.append(batch_arrays.kept(numbers))

    def step(self) -> None:
        """The loop has taken a step."""
        number = (self._epoch - 1) * self.run.recipe.steps + self._taken
        self._taken += 1
        r = self.run.recipe
        known = self._taken in (1, r.steps) or number < r.warmup_steps or not self.watch.waits
        if known and (rate := self.watch.rate()) is not None:
            self.rates.append((number, rate))

    def end(self) -> None:
        """The epoch is over: its labels are counted.

        Raises:
            LoaderError: it took more or fewer steps than the recipe has, so the rates are wrong.
        """
        steps = self.run.recipe.steps
        if self._taken != steps:
            raise LoaderError(
                f"epoch {self._epoch} took {self._taken} of {steps} steps; let the loop take a "
                "step for each batch of run.watch(...)"
            )
        labels, numbers = joined(self._labels), joined(self._numbers)
        self.pixels[self._epoch] = [
            batch_arrays.in_memory(each) for each in self.pixels[self._epoch]
        ]
        targets = self.run.train_part.targets
        known = (numbers >= 0) & (numbers < len(targets))
        self.misplaced += int((~known).sum())
        self.misplaced += training_checks.other_labels(labels[known], targets[numbers[known]])
        counts = training_checks.counts(labels, self.run.recipe.outputs)
        self.epochs.append(Epoch(self._epoch, self._taken, len(labels), counts))
        self.numbers[self._epoch] = numbers

    def observed(self) -> Observed:
        """All that was noted; called once, when training has ended."""
        run = self.run
        found = [crop for epoch in self.numbers for crop in self._crops(epoch)]
        peak = getattr(run.framework, "peak_bytes", lambda devices: None)
        return Observed(
            run.rank,
            self.watch.seen(),
            self.rates,
            self.epochs,
            self.evaluations,
            self.numbers,
            self.misplaced,
            found,
            self.weights,
            self.others,
            cores=cpu_cores.pinned(),
            resident=1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            pooled=peak(run.own_devices),
            switches=switches.on(self.replica.network, run.on_gpu),
            blocks=list(self._blocks()),
        )

    def _blocks(self) -> Iterator[list[str]]:
        """Digests of the images and crops of each device, of the first epoch's first steps."""
        size = self.run.recipe.batch_size
        for step, pixels in enumerate(self.pixels.get(1, [])[: training_checks.FIRST]):
            first = step * self.images
            numbers = self.numbers[1][first : first + self.images].astype(np.int64)
            yield [
                hashlib.sha256(
                    np.ascontiguousarray(pixels[at : at + size]).tobytes()
                    + numbers[at : at + size].tobytes()
                ).hexdigest()
                for at in range(0, self.images, size)
            ]

    def _crops(self, epoch: int) -> Iterator[crops.Crop]:
        """Where the crops that were kept are in their images."""
        part = self.run.train_part
        kept = (crop for batch in self.pixels[epoch] for crop in batch)
        for place, (crop, image) in enumerate(
            zip(kept, self.numbers[epoch].tolist(), strict=False)
        ):
            if 0 <= image < len(part):
                source, process = part.read(image), self.run.rank
                yield crops.of_image(
                    crop, source, process=process, epoch=epoch, place=place, image=image
                )


class TurnNotes:
    """How many images one process was given in a measured turn."""

    images = 0

    def batch(self, batch: Any) -> None:
        """The loop is going to take a step on this batch."""
        self.images += batch_arrays.own_length(parts_of(batch)[0])


class EvaluationNotes:
    """Which images of a part one process evaluated; number -1 is none and fills a batch up."""

    def __init__(self) -> None:
        self._targets: list[Any] = []
        self._numbers: list[Any] = []

    def batch(self, batch: Any) -> None:
        """The loop is going to evaluate this batch."""
        _, targets, numbers = parts_of(batch)
        self._targets.append(batch_arrays.kept(targets))
        self._numbers.append(batch_arrays.kept(numbers))

    def evaluation(self, name: str, part: Part, rank: int, processes: int) -> Evaluation:
        """What this process evaluated of a part: with all others, every image once."""
        numbers = joined([np.zeros(0, int), *self._numbers])
        labels = joined([part.targets[:0], *self._targets])[numbers != FILLED]
        numbers = numbers[numbers != FILLED]
        known = (numbers >= 0) & (numbers < len(part))
        wrong = int((~known).sum()) + len(numbers) - len(np.unique(numbers))
        wrong += training_checks.other_labels(labels[known], part.targets[numbers[known]])
        own = len(range(rank, len(part), processes))
        return Evaluation(name, len(numbers), own, wrong)
