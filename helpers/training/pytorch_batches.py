"""Reusable shared memory for the batches of PyTorch's DataLoader.

A worker hands over a tensor in shared memory that is new each time: its pages are zeroed and mapped
on both sides, and the file behind it travels through a socket. Of RGB images that costs half as
much as to decode them. Here all batches of a loader lie in one block, made before its workers
start; what travels is the number of a place there, and the host's tensors lie in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler, SequentialSampler

from helpers.training.buffer_pool import AHEAD, LENT, Places, Writes, requested

Arrived = tuple[torch.Tensor, torch.Tensor]


class Loader(DataLoader[Any]):
    """Batches of a dataset: pixels, uint8 (images, H, W, planes), and targets, as tensors.

    The caller owns them: no process writes to their memory while it has them. On the way to a GPU
    they are pinned.
    """

    def __init__(
        self,
        dataset: Writes,
        batch_size: int,
        shape: Sequence[int],
        *,
        num_workers: int,
        sampler: Iterable[int] | None = None,
        **how: Any,
    ) -> None:
        """``shape``: of an image, (H, W, planes); ``how``: more of DataLoader's arguments."""
        memory, places = torch.empty(0, dtype=torch.uint8), None
        order: Any = BatchSampler(sampler or SequentialSampler(dataset), batch_size, False)
        if num_workers:
            memory = torch.empty(
                (requested(num_workers) + LENT, batch_size, *shape), dtype=torch.uint8
            )
            places = Places(memory.share_memory_().numpy(), requested(num_workers))
            order = _Placed(order, places)
        super().__init__(
            _Batches(dataset, shape, memory, id(places)),
            batch_sampler=order,
            num_workers=num_workers,
            persistent_workers=num_workers > 0,
            prefetch_factor=AHEAD if num_workers else None,
            collate_fn=_as_it_is,
            **how,
        )
        self.places = places
        if places:
            _places[id(places)] = places

    def __iter__(self) -> Iterator[Arrived]:  # type: ignore[override]
        return map(_arrived, super().__iter__())


_places: WeakValueDictionary[int, Places] = WeakValueDictionary()


class _Asked(NamedTuple):
    """What travels to a worker: a place, and the images to write there, by number."""

    place: int
    numbers: list[int]


class _Placed(Sampler[Any]):
    """Another sampler's batches, each with a place for it."""

    def __init__(self, batches: BatchSampler, places: Places) -> None:
        self.batches, self.places = batches, places

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[_Asked]:
        self.places.give_back_coming()  # DataLoader has waited for what it had asked for earlier
        for numbers in self.batches:
            yield _Asked(self.places.take(), numbers)


class _Batches(Dataset[Any]):
    """Whole batches of another dataset, in places that the workers share with this process."""

    def __init__(
        self, dataset: Writes, shape: Sequence[int], memory: torch.Tensor, places: int
    ) -> None:
        self.dataset, self.shape, self.memory, self.places = dataset, shape, memory, places

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, asked: _Asked | list[int]) -> _Batch | Arrived:
        if isinstance(asked, _Asked):
            pixels = self.memory[asked.place, : len(asked.numbers)].numpy()
            targets = self.dataset.write(asked.numbers, pixels)
            return _Batch(self.places, asked.place, targets)
        pixels = np.empty((len(asked), *self.shape), np.uint8)
        targets = self.dataset.write(asked, pixels)
        return torch.from_numpy(pixels), torch.from_numpy(targets)


class _Batch(NamedTuple):
    """What travels from a worker."""

    places: int
    place: int
    targets: np.ndarray

    def pin_memory(self) -> Arrived:
        """Called by DataLoader's own thread, where batches are to be pinned."""
        places = _places[self.places]
        pixels = torch.from_numpy(places.memory[self.place, : len(self.targets)]).pin_memory()
        places.give_back(self.place)
        return pixels, torch.from_numpy(self.targets).pin_memory()

    def arrived(self) -> Arrived:
        """The shared pixels, and the targets."""
        pixels = _places[self.places].arrived(self.place, len(self.targets))
        return torch.from_numpy(pixels), torch.from_numpy(self.targets)


def _arrived(batch: Any) -> Arrived:
    return batch.arrived() if isinstance(batch, _Batch) else tuple(batch)


def _as_it_is(batch: Any) -> Any:
    return batch
