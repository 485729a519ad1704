"""Observe a process while it trains, and report afterwards what it trained on and how.

Of each step it keeps what costs nothing: the learning rate, if that is known without waiting for a
device, and a reference to the batch's labels, which are counted when the epoch is over. Of the
first and the last epoch it also keeps the pixels of the first batches. When training has ended, the
notebook's own loader is asked for these epochs again, with numbers in place of labels
(``numbered_images``): so each crop that was trained on can be looked for in its image.
"""

from __future__ import annotations

import resource
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from helpers.errors import LoaderError
from helpers.fairness import crops, training_checks
from helpers.fairness.training_checks import Epoch, Evaluation, Observed
from helpers.frameworks import cpu_cores, switches
from helpers.networks.shapes import RUNNING
from helpers.networks.weights import Arrays
from helpers.recipe import MULTICLASS
from helpers.training import numbered_images
from helpers.training.world import World

MOST_PIXELS = 512
"""Images of an epoch of which a process keeps the crops, or of its first batch if that has more."""
MOST_REPLAYED = 2048
"""Images of an epoch that a process asks its loader for again, or one batch if that has more."""


class Observer:
    """What a process notes of its training; ``train_loop.train`` tells it where that is.

    ``StepClock`` tells it of batches and steps.
    """

    def __init__(
        self, world: World, work: Any, replica: Any, first_epoch: int, weights: Arrays | None = None
    ) -> None:
        self.world, self.work = world, work
        self.shares = 1
        """Into how many parts a batch is split of which this process sees its own only."""
        self.watch = work.framework.watch(replica)
        self.network = replica.network
        self.weights: int | None = None
        """How many numbers are to be trained; None where no reference knows the network."""
        if weights is not None and work.recipe.recipe.network != "own":
            trained = (array for name, array in weights.items() if not name.endswith(RUNNING))
            self.weights = sum(array.size for array in trained)
        self.others = 0
        if weights is not None:
            held = work.framework.dump_weights(replica.network)
            self.others = training_checks.other_arrays(held, weights)
        self.kept = {first_epoch, work.recipe.recipe.epochs}
        self.steps = work.recipe.steps(len(work.images.train))
        self.images = work.recipe.recipe.batch_size * len(world.devices)
        """How many this process trains on in each step."""
        self.warmup = work.recipe.recipe.warmup_epochs * self.steps
        self.rates: list[tuple[int, float]] = []
        self.epochs: list[Epoch] = []
        self.evaluations: list[Evaluation] = []
        self.labels: dict[int, np.ndarray] = {}
        self.pixels: dict[int, list[np.ndarray]] = {}
        self._epoch = self._taken = 0
        self._targets: list[Any] = []

    def begin(self, epoch: int) -> None:
        """An epoch begins."""
        self._epoch, self._taken, self._targets = epoch, 0, []
        self.pixels[epoch] = []

    def batch(self, batch: Any) -> None:
        """The loop has got this batch, and is going to take a step on it.

        Raises:
            LoaderError: it has other than the recipe's number of images. A mean over the ranks
                would be wrong, and some frameworks would wait for ever for a rank's other shape.
        """
        pixels, found = self.pixels[self._epoch], 0
        wanted = self._epoch in self.kept and sum(map(len, pixels)) < MOST_PIXELS
        for part in numbered_images.parts_of(batch):
            if part.ndim < 4:
                self._targets.append(part)
                found += numbered_images.own_length(part)
            elif wanted:  # a copy: the loader writes other images there
                pixels.append(np.array(numbered_images.in_memory(part)))
        own = self.images // self.shares
        if found != own:
            raise LoaderError(
                f"batch {self._taken + 1} of {self.steps} has {found} images, not {own}; let "
                f"make_train_loader give {own} images in each batch"
            )

    def step(self) -> None:
        """The loop has taken a step."""
        number = (self._epoch - 1) * self.steps + self._taken
        self._taken += 1
        ends = self._taken in (1, self.steps)
        known = ends or number < self.warmup or not self.watch.waits
        if known and (rate := self.watch.rate()) is not None:
            self.rates.append((number, rate))

    def end(self) -> None:
        """The epoch is over: its labels are counted."""
        task, outputs = self.work.images.task, len(self.work.images.classes)
        arrays = [numbered_images.in_memory(part) for part in self._targets]
        labels = np.concatenate(arrays) if arrays else np.zeros((0, outputs))
        if task == MULTICLASS:
            labels = labels.reshape(len(labels))
        counts = training_checks.counts(labels, outputs)
        self.epochs.append(Epoch(self._epoch, self._taken, len(labels), counts))
        if self._epoch in self.kept:
            self.labels[self._epoch] = labels
        self._targets = []

    def observed(self) -> Observed:
        """All that was noted, once the notebook's loader has been asked again."""
        work, images = self.work, self.work.images
        epochs = [epoch.number for epoch in self.epochs if epoch.number in self.kept]
        replayed = {number: self._replay(number) for number in dict.fromkeys(epochs)}
        labels = images.targets(images.train)
        misplaced = 0
        for number, order in replayed.items():
            trained, said = self.labels[number][: len(order)], labels[order]
            misplaced += (
                training_checks.other_labels(trained, said[: len(trained)])
                + len(order)
                - len(trained)
            )
        found = [crop for number, order in replayed.items() for crop in self._crops(number, order)]
        return Observed(
            self.world.rank,
            self.watch.seen(),
            self.rates,
            self.epochs,
            self.evaluations,
            replayed,
            misplaced,
            found,
            self.weights,
            self.others,
            self.shares,
            cpu_cores.pinned(),
            1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            getattr(work.framework, "peak_bytes", lambda devices: None)(self.world.devices),
            switches.on(self.network, self.world.on_gpu),
        )

    def _replay(self, number: int) -> np.ndarray:
        """The images of an epoch by the notebook's loader, from the first on."""
        work = self.work
        batches = min(max(MOST_REPLAYED // self.images, 1), self.steps)
        task, classes = work.images.task, work.images.classes
        train = numbered_images.numbered(work.images.train, task, classes)
        with numbered_images.standing_in(work.images, train, task, classes):
            (order,) = numbered_images.read(self.world, work, number - 1, batches)
        return order if self.shares == 1 else order.reshape(batches, self.shares, -1)[:, 0].ravel()

    def _crops(self, number: int, order: np.ndarray) -> Iterator[crops.Crop]:
        """Where the crops that were kept are in the images of that order."""
        images = self.work.images
        rows = images.train["row"].to_numpy()
        kept = [crop for part in self.pixels[number] for crop in part]
        for place, (crop, image) in enumerate(zip(kept, order.tolist(), strict=False)):
            source = images.read(rows[image])
            yield crops.of_image(
                crop, source, process=self.world.rank, epoch=number, place=place, image=image
            )


class Evaluated:
    """The batches of an evaluation as they pass, and afterwards which images they were."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self.batches, self._targets = batches, list[Any]()

    def __iter__(self) -> Iterator[Any]:
        for batch in self.batches:
            self._targets += [part for part in numbered_images.parts_of(batch) if part.ndim < 4]
            yield batch

    def images(self, world: World, images: Any, part: str) -> Evaluation:
        """What this process evaluated of a part, ``valid`` or ``test``: every n-th image.

        Behind its last one the first ones may come again, where a framework fills up its last
        batch.
        """
        table = images.targets(getattr(images, part))
        own = world.own(len(table))
        arrays = [numbered_images.in_memory(each) for each in self._targets]
        found = np.concatenate(arrays) if arrays else table[:0]
        wanted = table[(world.rank + world.processes * np.arange(len(found))) % len(table)]
        return Evaluation(
            part, min(len(found), own), own, training_checks.other_labels(found, wanted)
        )
