"""Reusable shared memory for the batches of Gluon's DataLoader.

A worker stacks a batch's images, and copies them into shared memory that is new each time; there
they are copied again for the device. Of RGB images that costs more than to decode them. Here all
batches of a loader lie in one block, made before its workers are forked, into which they write;
what travels is the number of a place there, and the host's NDArrays lie in it.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.util import Finalize
from operator import itemgetter
from threading import Thread
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.gluon.data import DataLoader

from helpers.training.buffer_pool import AHEAD, LENT, Places, Writes, requested

END_SECONDS = 30
"""In which workers have to have made the batches that were asked for."""
AT_EXIT = 16
"""The order at exit: a pool kills its workers at 15, later."""


class Loader(DataLoader):  # type: ignore[misc]
    """Batches of a dataset: pixels, uint8 (images, H, W, planes), and targets, as NDArrays.

    The caller owns them: no process writes to their memory while it has them. On the way to a GPU
    they are pinned.
    """

    def __init__(
        self,
        dataset: Writes,
        batch_size: int,
        shape: Sequence[int],
        batches: Iterable[list[int]],
        *,
        num_workers: int,
        pin_memory: bool,
        auto_reload: bool = False,
    ) -> None:
        """``shape``: of an image, (H, W, planes); ``batches``: each one's images, by number."""
        block = (requested(num_workers) + LENT, batch_size, *shape)
        memory = np.frombuffer(mmap.mmap(-1, int(np.prod(block))), np.uint8).reshape(block)
        self.places = Places(memory, requested(num_workers))
        self.context = mx.cpu_pinned() if pin_memory else mx.cpu()
        self.coming: dict[int, Any] = {}
        super().__init__(
            _Places(dataset, memory),
            batch_sampler=_Placed(batches, self.places),
            batchify_fn=itemgetter(0),
            num_workers=num_workers,
            prefetch=AHEAD * num_workers,
            auto_reload=auto_reload,
        )
        if (pool := self._worker_pool) is not None:
            pool.terminate = Finalize(self, _end, (pool, pool.terminate), exitpriority=AT_EXIT)

    def refresh(self) -> None:
        """As DataLoader's; places that an iterator left behind are waited for."""
        for task in self.coming.values():
            task.wait()
        self.places.give_back_coming()
        super().refresh()
        self.coming = getattr(self._iter, "_data_buffer", {})

    def __iter__(self) -> Iterator[list[mx.nd.NDArray]]:
        for place, targets in super().__iter__():
            pixels = self.places.arrived(place, len(targets))
            yield [self._sent(array) for array in (pixels, targets)]

    def _sent(self, array: np.ndarray) -> mx.nd.NDArray:
        if self.context == mx.cpu():  # MXNet's own copy takes ten times as long as NumPy's
            return mx.nd.from_numpy(array)
        found = mx.nd.empty(array.shape, self.context, array.dtype)
        found[:] = array  # mx.nd.array would copy it twice
        return found


def _end(pool: Any, kill: Callable[[], None]) -> None:
    """End workers when they have done what they were asked for, once, for ``Pool.terminate``.

    That kills them at work. One that was just handing on a batch takes the lock of their answers
    with it, and then a thread of the pool waits for the lock for ever, and ``terminate`` for the
    thread.
    """
    pool.close()
    joined = Thread(target=pool.join, daemon=True)
    joined.start()
    joined.join(END_SECONDS)
    if joined.is_alive():  # a worker was killed from outside: its batch never comes
        kill()


class _Placed:
    """The place and the images of each batch, as the only example of a batch."""

    def __init__(self, batches: Iterable[list[int]], places: Places) -> None:
        self.batches, self.places = batches, places

    def __iter__(self) -> Iterator[list[tuple[int, list[int]]]]:
        for numbers in self.batches:
            yield [(self.places.take(), numbers)]


class _Places:
    """A dataset whose examples are whole batches, in places that the workers share."""

    def __init__(self, dataset: Writes, memory: np.ndarray) -> None:
        self.dataset, self.memory = dataset, memory

    def __getitem__(self, batch: tuple[int, list[int]]) -> tuple[int, np.ndarray]:
        place, numbers = batch
        return place, self.dataset.write(numbers, self.memory[place, : len(numbers)])
