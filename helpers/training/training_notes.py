"""A process's notes on its training and evaluations, batch by batch.

A batch brings the numbers of its images, so everything that was trained on can be compared with
the tables: labels, order, and, for the first batches of the first and the last epoch, the crops.
Nothing waits for a device between the first step and the last of an epoch.
"""

from __future__ import annotations

import hashlib
import resource
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from helpers.errors import LoaderError
from helpers.fairness import crops, training_checks, weight_checks
from helpers.fairness.reference_checks import centre_crop
from helpers.fairness.training_checks import Epoch, Evaluation, Observed
from helpers.fairness.weight_checks import Moment
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
LOOKED_AT = 8
"""Images of each evaluation of which the pixels are compared."""


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
    """Notes on what one process trained on, and how."""

    def __init__(self, run: RunState, replica: Any, processes: int, start: Arrays) -> None:
        self.run, self.replica = run, replica
        self.watch = run.framework.watch(replica)
        self.images = run.recipe.batch_size * run.setup.replicas // processes
        """How many this process trains on in each step."""
        held = run.framework.dump_weights(replica.network)
        self.others = training_checks.other_arrays(held, start)
        self.weights: int | None = None
        """How many numbers are to be trained; None if no reference knows the network."""
        if run.recipe.network != "own":
            trained = (array for name, array in start.items() if not name.endswith(RUNNING))
            self.weights = sum(array.size for array in trained)
        self.rates: list[tuple[int, float]] = []
        self.epochs: list[Epoch] = []
        self.evaluations: list[Evaluation] = []
        self.metrics: list[float] = []
        self.moments: list[Moment] = []
        self.pixels: dict[int, list[Any]] = {}
        self._taken = 0
        self._labels: list[Any] = []
        self._numbers: list[Any] = []

    def begin(self, epoch: int, *, keep: bool) -> None:
        """Epoch number ``epoch``, from 1, begins; whether crops are kept of it."""
        self._epoch, self._keep, self._taken = epoch, keep, 0
        self.look(f"when epoch {epoch} begins")
        self._labels, self._numbers, self.pixels[epoch] = [], [], []

    def look(self, when: str, *, trained: bool = False) -> None:
        """Note the weights, for which the devices are waited for."""
        self.moments.append(weight_checks.moment(when, self.watch.held(), trained=trained))

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
        if self.watch.live and self._taken == 1 and not self.epochs:
            self.look("after the first step", trained=True)
        if self.watch.live and self._taken == r.steps:
            self.look(f"after the last step of epoch {self._epoch}", trained=True)

    def end(self) -> None:
        """The epoch is over: its images and labels are compared with the table.

        Raises:
            LoaderError: it took more or fewer steps than the recipe has, so the rates are wrong.
        """
        self.look(f"after epoch {self._epoch}", trained=not self.watch.live)
        steps = self.run.recipe.steps
        if self._taken != steps:
            raise LoaderError(
                f"epoch {self._epoch} took {self._taken} of {steps} steps; let the loop take a "
                "step for each batch of run.watch(...)"
            )
        labels, numbers = joined(self._labels), joined(self._numbers).astype(np.int64)
        self.pixels[self._epoch] = [
            batch_arrays.in_memory(each) for each in self.pixels[self._epoch]
        ]
        targets = self.run.train_part.targets
        known = (numbers >= 0) & (numbers < len(targets))
        wrong = int((~known).sum())
        wrong += int(training_checks.other_labels(labels[known], targets[numbers[known]]).sum())
        self.epochs.append(Epoch(self._epoch, self._taken, numbers, wrong))

    def observed(self) -> Observed:
        """All that was noted; called once, when training has ended."""
        run = self.run
        found = [crop for epoch in self.epochs for crop in self._crops(epoch)]
        peak = getattr(run.framework, "peak_bytes", lambda devices: None)
        return Observed(
            run.rank,
            self.watch.seen(),
            self.rates,
            self.epochs,
            self.evaluations,
            found,
            self.moments,
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
            numbers = self.epochs[0].images[first : first + self.images]
            yield [
                hashlib.sha256(
                    np.ascontiguousarray(pixels[at : at + size]).tobytes()
                    + numbers[at : at + size].tobytes()
                ).hexdigest()
                for at in range(0, self.images, size)
            ]

    def _crops(self, epoch: Epoch) -> Iterator[crops.Crop]:
        """What the crops that were kept are of their images."""
        part, seed = self.run.train_part, self.run.recipe.seed
        kept = (crop for batch in self.pixels[epoch.number] for crop in batch)
        for crop, image in zip(kept, epoch.images.tolist(), strict=False):
            if 0 <= image < len(part):
                source = part.read(image)
                yield crops.of_image(crop, source, seed=seed, epoch=epoch.number, image=image)


class TurnNotes:
    """The number of images that one process received in a measurement."""

    images = 0

    def batch(self, batch: Any) -> None:
        """The loop is going to take a step on this batch."""
        self.images += batch_arrays.own_length(parts_of(batch)[0])


class EvaluationNotes:
    """The images of a part that one process evaluated; the number -1 pads a batch."""

    def __init__(self, look: Callable[[], None]) -> None:
        """``look`` notes the weights of the first batch."""
        self._look = look
        self._pixels: Any = None
        self._targets: list[Any] = []
        self._numbers: list[Any] = []

    def batch(self, batch: Any) -> None:
        """The loop is going to evaluate this batch."""
        pixels, targets, numbers = parts_of(batch)
        if not self._numbers:
            self._look()
            self._pixels = batch_arrays.kept(pixels)
        self._targets.append(batch_arrays.kept(targets))
        self._numbers.append(batch_arrays.kept(numbers))

    def evaluation(self, name: str, part: Part, run: RunState, processes: int) -> Evaluation:
        """This process's part of an evaluation; all processes together evaluate each image once."""
        numbers = joined([np.zeros(0, int), *self._numbers])
        labels = joined([part.targets[:0], *self._targets])[numbers != FILLED]
        numbers = numbers[numbers != FILLED]
        known = (numbers >= 0) & (numbers < len(part))
        wrong = int((~known).sum()) + len(numbers) - len(np.unique(numbers))
        read = numbers[known]
        others = set(read[training_checks.other_labels(labels[known], part.targets[read])].tolist())
        for pixels, number in zip(self._seen(), numbers[:LOOKED_AT].tolist(), strict=False):
            if 0 <= number < len(part):
                crop = centre_crop(part.read(number), run.recipe.crop)
                others |= set() if np.array_equal(pixels, crop) else {number}
        own = len(range(run.rank, len(part), processes))
        return Evaluation(name, len(numbers), own, wrong + len(others))

    def _seen(self) -> np.ndarray:
        """The pixels of the first batch."""
        return np.zeros(0) if self._pixels is None else batch_arrays.in_memory(self._pixels)
