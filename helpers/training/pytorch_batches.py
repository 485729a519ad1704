"""What PyTorch's DataLoader lacks for this suite: memory for batches that is used again.

A worker hands over a tensor in shared memory that is new each time: its pages are zeroed and mapped
on both sides, and the file behind it travels through a socket. Of RGB images that costs half as
much as to decode them. Here all batches of a loader lie in one block, made before its workers
start; what travels is the number of a place there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

AHEAD = 2
"""Batches that a worker has ready or in work: DataLoader's default."""

Arrived = tuple[torch.Tensor, torch.Tensor]


class Writes(Protocol):
    """A dataset that writes the pixels of a batch where it is told."""

    def __len__(self) -> int:
        """The number of its images."""

    def write(self, numbers: list[int], pixels: np.ndarray) -> np.ndarray:
        """Write these images into ``pixels``, uint8 (images, H, W, planes); their targets."""


class Loader(DataLoader[Any]):
    """Batches of a dataset: pixels, uint8 (images, H, W, planes), and targets, as tensors.

    They are the caller's own, in memory that nobody writes to again; on the way to a GPU, pinned.
    """

    def __init__(
        self,
        dataset: Writes,
        batch_size: int,
        shape: Sequence[int],
        *,
        num_workers: int,
        **how: Any,
    ) -> None:
        """``shape``: of an image, (H, W, planes); ``how``: more of DataLoader's arguments."""
        super().__init__(
            _Places(dataset, (batch_size, *shape), num_workers),
            batch_size=batch_size,
            num_workers=num_workers,
            persistent_workers=num_workers > 0,
            prefetch_factor=AHEAD if num_workers else None,
            collate_fn=_as_it_is,
            **how,
        )

    def __iter__(self) -> Iterator[Arrived]:  # type: ignore[override]
        return map(_arrived, super().__iter__())


class _Places(Dataset[Any]):
    """Whole batches of another dataset, in places that the workers share with this process.

    A place is written again when its worker begins its third batch after it: that one is asked for
    when the second has arrived, and then the first is copied.
    """

    def __init__(self, dataset: Writes, shape: Sequence[int], workers: int) -> None:
        self.dataset, self.shape, self.turn = dataset, shape, 0
        self.memory = torch.empty((workers * (AHEAD + 1), *shape), dtype=torch.uint8)
        if workers:
            self.memory.share_memory_()
        _places[id(self)] = self
        self.key = id(self)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, numbers: list[int]) -> _Batch | Arrived:
        worker = get_worker_info()
        if worker is None:
            pixels = np.empty((len(numbers), *self.shape[1:]), np.uint8)
            targets = self.dataset.write(numbers, pixels)
            return torch.from_numpy(pixels), torch.from_numpy(targets)
        place = worker.id * (AHEAD + 1) + self.turn % (AHEAD + 1)
        self.turn += 1
        targets = self.dataset.write(numbers, self.memory[place, : len(numbers)].numpy())
        return _Batch(self.key, place, targets)


_places: WeakValueDictionary[int, _Places] = WeakValueDictionary()


class _Batch(NamedTuple):
    """What travels from a worker."""

    places: int
    place: int
    targets: np.ndarray

    def parts(self) -> Arrived:
        """The shared pixels, and the targets."""
        pixels = _places[self.places].memory[self.place, : len(self.targets)]
        return pixels, torch.from_numpy(self.targets)

    def pin_memory(self) -> Arrived:
        """Called by DataLoader's own thread, where batches are to be pinned."""
        pixels, targets = self.parts()
        return pixels.pin_memory(), targets.pin_memory()

    def copied(self) -> Arrived:
        pixels, targets = self.parts()
        # By NumPy: PyTorch's own copy wakes all threads, which takes longer than the copy.
        return torch.from_numpy(pixels.numpy().copy()), targets


def _arrived(batch: Any) -> Arrived:
    return batch.copied() if isinstance(batch, _Batch) else tuple(batch)


def _as_it_is(batch: Any) -> Any:
    return batch
