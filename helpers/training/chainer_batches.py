"""Reusable memory and several batches in work for Chainer's MultiprocessIterator.

**Memory for batches that is used again.** A worker copies an example into shared memory, a thread
of the training process copies it out again, and the converter copies it into the batch. Here all
batches of an iterator lie in one block, made before its workers are forked, into which they write;
what travels is the number of a place there, and the converter makes the only copy.

**Several batches in work at a time.** Chainer's workers begin a batch when the one before it is
done, and so wait for its slowest part, and have nothing to do where a batch has fewer parts than
there are workers.
"""

from __future__ import annotations

import math
import mmap
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import TimeoutError as NotYet
from typing import Any, Protocol

import numpy as np
from chainer.iterators import MultiprocessIterator, _statemachine, multiprocess_iterator

AHEAD = 2
"""Finished batches, in addition to those in work and the one that is being converted."""

Order = Callable[[np.ndarray, int], np.ndarray]


class Writes(Protocol):
    """A dataset that writes the pixels of a part of a batch into given memory."""

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
        self.in_work = 1 + math.ceil(workers / parts)  # so that each worker has a part at any time
        places = (AHEAD + 1 + self.in_work) * parts
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

    def _initialize_loop(self) -> None:
        super()._initialize_loop()
        self._prefetch_loop.__class__ = _SeveralInWork
        self._prefetch_loop.in_work = self.in_work
        self._prefetch_loop.begun = deque()

    def __next__(self) -> list[tuple[np.ndarray, np.ndarray]]:
        batch = super().__next__()
        if isinstance(batch, Exception):
            raise batch
        return [(self.memory[place, : len(targets)], targets) for place, targets in batch]

    next = __next__


class _SeveralInWork(multiprocess_iterator._PrefetchLoop):  # type: ignore[misc]
    """The thread that has workers make batches, and hands these on in their order."""

    in_work: int
    begun: deque[tuple[Any, Any, int]]

    def _task(self) -> bool:
        """Hand on one batch; whether there is more to do."""
        status, state, resets = self._comm.check()
        if status == self._comm.STATUS_TERMINATE:
            return False
        if status == self._comm.STATUS_RESET:  # batches begun before are made, and thrown away
            self.prefetch_state = state
        while len(self.begun) < self.in_work:
            self.begun.append((self._begin(), self.prefetch_state, resets))
        work, state, resets = self.begun.popleft()
        try:
            batch = None if work is None else self._end(work)
        except Exception as error:  # in this thread it would end nothing but the thread
            batch = error
        if self._comm.is_terminated:
            return False
        self._comm.put(batch, state, resets)
        return not isinstance(batch, Exception)

    def _begin(self) -> Any:
        """The next batch, which workers begin with; None behind the last."""
        self.prefetch_state, numbers = _statemachine.iterator_statemachine(
            self.prefetch_state, self.batch_size, self.repeat, self.order_sampler, len(self.dataset)
        )
        if numbers is None:
            return None
        return self._pool.map_async(multiprocess_iterator._fetch_run, enumerate(numbers))

    def _end(self, work: Any) -> Any:
        """A batch when it is made; None where the iterator ends meanwhile."""
        while not self._comm.is_terminated:
            with suppress(NotYet):
                return work.get(multiprocess_iterator._response_time)
        return None


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
