"""What Chainer's MultiprocessIterator lacks for this suite: memory for batches that is used again.

A worker copies an example into shared memory, a thread of the training process copies it out
again, and the converter copies it into the batch. Here all batches of an iterator lie in one
block, made before its workers are forked, into which they write; what travels is the number of a
place there, and the converter makes the only copy.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from chainer.iterators import MultiprocessIterator

AHEAD = 2
"""Batches that lie ready; one more is in work, and one is being converted."""

Order = Callable[[np.ndarray, int], np.ndarray]


class Writes(Protocol):
    """A dataset that writes the pixels of a part of a batch where it is told."""

    part: int

    def __len__(self) -> int:
        """Parts in an epoch."""

    def write(self, number: int, pixels: np.ndarray) -> np.ndarray:
        """Write this part into ``pixels``, uint8 (part, H, W, planes); its targets."""


class SharedIterator(MultiprocessIterator):  # type: ignore[misc]
    """Batches of a dataset, as lists of parts: pixels in the shared block, and targets.

    A batch is to be converted before the next one is asked for, as updaters and evaluators do:
    then its pixels are written over.
    """

    def __init__(
        self,
        dataset: Writes,
        parts: int,
        shape: Sequence[int],
        workers: int,
        *,
        repeat: bool = True,
        order_sampler: Order | None = None,
    ) -> None:
        """``parts``: in a batch; ``shape``: of an image, (H, W, planes); without ``order_sampler``
        the parts come in their order."""
        places = (AHEAD + 2) * parts
        block = (places, dataset.part, *shape)
        self.memory = np.frombuffer(mmap.mmap(-1, int(np.prod(block))), np.uint8).reshape(block)
        super().__init__(
            _Places(dataset, self.memory),
            parts,
            repeat=repeat,
            n_processes=workers,
            n_prefetch=AHEAD,
            shared_mem=0,
            order_sampler=_Placed(order_sampler or _in_order, places),
        )

    def __next__(self) -> list[tuple[np.ndarray, np.ndarray]]:
        batch = super().__next__()
        return [(self.memory[place, : len(targets)], targets) for place, targets in batch]

    next = __next__


class _Placed:
    """An order sampler: the numbers of another, each with the next place."""

    def __init__(self, order: Order, places: int) -> None:
        self.order, self.places, self.given = order, places, 0

    def __call__(self, order: np.ndarray, position: int) -> np.ndarray:
        numbers = self.order(order, position)
        given = self.given + np.arange(len(numbers))
        self.given += len(numbers)
        return np.stack([given % self.places, numbers], axis=1)


class _Places:
    """A dataset whose examples are written to places that the workers share."""

    def __init__(self, dataset: Writes, memory: np.ndarray) -> None:
        self.dataset, self.memory = dataset, memory

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, example: np.ndarray) -> tuple[int, np.ndarray]:
        place, number = (int(each) for each in example)
        return place, self.dataset.write(number, self.memory[place])


def _in_order(order: np.ndarray, position: int) -> np.ndarray:
    return np.arange(len(order))
