"""A process's notes on its training and evaluations, batch by batch.

Nothing waits for a device between the first step and the last of an epoch.
"""

from __future__ import annotations

import hashlib
import resource
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from helpers.errors import LoaderError
from helpers.fairness import crops, training_checks, weight_checks
from helpers.fairness.observed import FIRST, Epoch, Evaluation, Observed
from helpers.fairness.reference_checks import centre_crop
from helpers.frameworks import cpu_cores
from helpers.networks.shapes import RUNNING
from helpers.networks.weights import Arrays
from helpers.training.notebook_recipe import Split
from helpers.training.run_state import RunState
from helpers.training.step_clock import StepClock

MOST_PIXELS = 512
"""Images of an epoch of which a process keeps the crops, or of its first batch if that has more."""
FILLED = -1
"""The number that is not an image's: it fills up the last batch of an evaluation."""
LOOKED_AT = 8
"""Images of each evaluation of which the pixels are compared."""


def own_length(part: Any) -> int:
    """How many images of an array this process has; no device is waited for."""
    if isinstance(values := getattr(part, "values", None), tuple):  # TensorFlow's, of all replicas
        return sum(map(len, values))
    shards = getattr(part, "addressable_shards", None)  # of JAX's arrays a process has some
    return len(part) if shards is None else sum(len(shard.data) for shard in shards)


def kept(part: Any) -> Any:
    """Keep such an array as it is now, not waiting for a device: its loader may fill it again."""
    changes = isinstance(part, np.ndarray) or hasattr(part, "asnumpy") or hasattr(part, "is_cuda")
    return np.array(in_memory(part)) if changes else part


def in_memory(part: Any) -> np.ndarray:
    """Such an array as NumPy's, for which its device is waited for."""
    if hasattr(part, "asnumpy"):  # MXNet's
        return np.asarray(part.asnumpy())
    if isinstance(values := getattr(part, "values", None), tuple):  # TensorFlow's, of all replicas
        return np.concatenate([in_memory(each) for each in values])
    if hasattr(part, "addressable_shards"):  # of JAX's arrays a process has some
        return np.concatenate([np.asarray(shard.data) for shard in part.addressable_shards])
    return np.asarray(part.cpu() if hasattr(part, "is_cuda") else part)


def parts_of(batch: Any) -> tuple[Any, Any, Any]:
    """Pixels, targets and numbers of a batch; raises LoaderError where it has other parts."""
    if not isinstance(batch, tuple | list) or len(batch) != 3:
        raise LoaderError(
            "run.watch: a batch must be pixels, targets and the images' numbers; let the dataset "
            "return all three"
        )
    return batch[0], batch[1], batch[2]


def joined(parts: Iterable[Any]) -> np.ndarray:
    """The same part of several batches, in memory."""
    return np.concatenate([in_memory(each) for each in parts])


@dataclass(kw_only=True)
class Batches:
    """The batches of a loop, as they were when they came."""

    pixels: list[Any] = field(default_factory=list)
    _targets: list[Any] = field(default_factory=list)
    _numbers: list[Any] = field(default_factory=list)

    def add(self, batch: Any, *, pixels: bool) -> None:
        """Keep a batch; its pixels only if asked to."""
        found, targets, numbers = parts_of(batch)
        self._targets.append(kept(targets))
        self._numbers.append(kept(numbers))
        if pixels:
            self.pixels.append(kept(found))

    def compared(
        self, split: Split, *, filled: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The numbers of all images; which are in the split; which of these have other labels."""
        numbers = joined([np.zeros(0, int), *self._numbers]).astype(np.int64)
        labels = joined([split.targets[:0], *self._targets])
        if filled:
            numbers, labels = numbers[numbers != FILLED], labels[numbers != FILLED]
        known = (numbers >= 0) & (numbers < len(split))
        others = training_checks.other_labels(labels[known], split.targets[numbers[known]])
        return numbers, known, others


class TrainingNotes:
    """Notes on what one process trained on, and how."""

    def __init__(self, run: RunState, replica: Any, processes: int, start: Arrays) -> None:
        self.run, self.replica = run, replica
        self.watch = run.framework.watch(replica)
        self._before = self.watch.updates()
        self.images = run.recipe.batch_size * run.setup.replicas // processes
        """How many this process trains on in each step."""
        held = run.framework.dump_weights(replica.network)
        self._others = training_checks.other_arrays(held, start)
        trained = (array for name, array in start.items() if not name.endswith(RUNNING))
        own = run.recipe.network == "own"  # which no reference knows
        self._weights = None if own else sum(array.size for array in trained)
        self.rates: list[tuple[int, float]] = []
        self.epochs: list[Epoch] = []
        self.evaluations: list[Evaluation] = []
        self.metrics: list[float] = []
        self.moments: list[weight_checks.Moment] = []
        self._crops: list[crops.Crop] = []
        self._blocks: list[list[str]] = []

    def begin(self, epoch: int, *, keep: bool) -> None:
        """Epoch number ``epoch``, from 1, begins; whether crops are kept of it."""
        self._epoch, self._keep, self._taken, self._batches = epoch, keep, 0, Batches()
        self.look(f"when epoch {epoch} begins")

    def look(self, when: str, *, trained: bool = False) -> None:
        """Note the weights, for which the devices are waited for."""
        self.moments.append(weight_checks.moment(when, self.watch.held(), trained=trained))

    def batch(self, batch: Any) -> None:
        """The loop is going to take a step on this batch.

        Raises:
            LoaderError: it has other than the recipe's number of images.
        """
        if (images := own_length(parts_of(batch)[2])) != self.images:
            raise LoaderError(
                f"batch {self._taken + 1} of {self.run.recipe.steps} has {images} images, "
                f"not {self.images}; let the training loader give {self.images} in each batch"
            )
        few = len(self._batches.pixels) * self.images < MOST_PIXELS
        self._batches.add(batch, pixels=self._keep and few)

    def step(self) -> None:
        """The loop has taken a step."""
        number = (self._epoch - 1) * self.run.recipe.steps + self._taken
        self._taken += 1
        r = self.run.recipe
        known = self._taken in (1, r.steps) or number < r.warmup_epochs * r.steps
        if (known or not self.watch.waits) and (rate := self.watch.rate()) is not None:
            self.rates.append((number, rate))
        if self.watch.live and self._taken == 1 and not self.epochs:
            self.look("after the first step", trained=True)
        if self.watch.live and self._taken == r.steps:
            self.look(f"after the last step of epoch {self._epoch}", trained=True)

    def end(self) -> None:
        """The epoch is over: its images and labels are compared with the table.

        Raises:
            LoaderError: it took more or fewer steps than the recipe has.
        """
        self.look(f"after epoch {self._epoch}", trained=not self.watch.live)
        steps = self.run.recipe.steps
        if self._taken != steps:
            raise LoaderError(
                f"epoch {self._epoch} took {self._taken} of {steps} steps; let the loop take a "
                "step for each batch of run.watch(...)"
            )
        numbers, known, others = self._batches.compared(self.run.train_split)
        wrong = int((~known).sum() + others.sum())
        self.epochs.append(Epoch(self._epoch, self._taken, numbers, wrong))
        batches = [in_memory(each) for each in self._batches.pixels]
        split, seed = self.run.train_split, self.run.recipe.seed
        kept = (crop for batch in batches for crop in batch)
        for crop, image in zip(kept, numbers.tolist(), strict=False):
            if 0 <= image < len(split):
                about = {"seed": seed, "epoch": self._epoch, "image": image}
                self._crops.append(crops.of_image(crop, split.read(image), **about))
        size = self.run.recipe.batch_size
        for step, pixels in enumerate(batches[:FIRST] if self._epoch == 1 else []):
            own = numbers[step * self.images : (step + 1) * self.images]
            places = (slice(at, at + size) for at in range(0, self.images, size))
            each = (np.ascontiguousarray(pixels[of]).tobytes() + own[of].tobytes() for of in places)
            self._blocks.append([hashlib.sha256(block).hexdigest() for block in each])

    def observed(self) -> Observed:
        """All that was noted; called once, when training has ended."""
        run = self.run
        peak = getattr(run.framework, "peak_bytes", lambda devices: None)
        return Observed(
            run.rank,
            replace(self.watch.seen(), updates=self.watch.updates() - self._before),
            self.rates,
            self.epochs,
            self.evaluations,
            self._crops,
            self.moments,
            self._weights,
            self._others,
            cores=cpu_cores.pinned(),
            resident=1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            pooled=peak(run.own_devices),
            blocks=self._blocks,
        )


@dataclass(kw_only=True)
class EvaluationNotes(Batches):
    """Which images of a split one process evaluated; ``look`` notes the weights that did."""

    look: Callable[[], None]

    def batch(self, batch: Any) -> None:
        """The loop is going to evaluate this batch."""
        if not self._numbers:
            self.look()
        self.add(batch, pixels=not self._numbers)

    def evaluation(self, name: str, split: Split, run: RunState, processes: int) -> Evaluation:
        """This process's part of an evaluation; all processes together evaluate each image once."""
        numbers, known, others = self.compared(split, filled=True)
        wrong = int((~known).sum()) + len(numbers) - len(np.unique(numbers))
        bad = {*numbers[known][others].tolist()}
        first = joined(self.pixels) if self.pixels else ()
        for pixels, number in zip(first, numbers[:LOOKED_AT].tolist(), strict=False):
            if 0 <= number < len(split):
                crop = centre_crop(split.read(number), run.recipe.crop)
                bad |= set() if np.array_equal(pixels, crop) else {number}
        own = len(range(run.rank, len(split), processes))
        return Evaluation(name, len(numbers), own, wrong + len(bad))


class Watching(StepClock):
    """The clock of a loop over batches, and notes on these by the phase in which this is made."""

    def __init__(self, loop: Any) -> None:
        run, phase = loop.run, loop.phase_now
        self._device, self._training = run.own_devices[0], phase == "train"
        told = [loop.within] if self._training and run.rank == 0 else []
        super().__init__(run.framework.queued, *told)
        self._notes: Any = loop.notes if self._training else None
        if phase in ("validate", "test"):
            self._notes = loop.evaluation
        self.images = 0
        loop.clock = self

    def batch(self, batch: Any, at: float) -> None:
        """This batch was there at this time, of ``time.perf_counter``; a step is taken on it."""
        self.arrived(at)
        if self._notes is not None:
            self._notes.batch(batch)
        elif not isinstance(batch, int):  # an all-reduce alone iterates over numbers
            self.images += own_length(parts_of(batch)[0])

    def step(self) -> None:
        self.queued(self._device)
        if self._training:
            self._notes.step()
