"""Reusable shared memory for the batches of PyTorch's DataLoader.

A worker hands over a tensor in shared memory that is new each time: its pages are zeroed and mapped
on both sides, and the file behind it travels through a socket. Of RGB images that costs half as
much as to decode them. Here all batches of a loader lie in one block, made before its workers
start; what travels is the number of a place there, and the host's tensors lie in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler, SequentialSampler
from torchvision.io import ImageReadMode, decode_jpeg

from helpers.recipe.settings import ON_CPU, ON_GPU
from helpers.training import encoded_images
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
        decoder: str = ON_CPU,
        **how: Any,
    ) -> None:
        """``shape``: of an image, (H, W, planes); ``how``: more of DataLoader's arguments.

        With the ``decoder`` of a GPU, workers read files alone, and the batch is on the GPU.
        """
        memory, places = torch.empty(0, dtype=torch.uint8), None
        order: Any = BatchSampler(sampler or SequentialSampler(dataset), batch_size, False)
        encoded = decoder == ON_GPU
        if num_workers and not encoded:
            memory = torch.empty(
                (requested(num_workers) + LENT, batch_size, *shape), dtype=torch.uint8
            )
            places = Places(memory.share_memory_().numpy(), requested(num_workers))
            order = _Placed(order, places)
        super().__init__(
            _Files(dataset, shape) if encoded else _Batches(dataset, shape, memory, id(places)),
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


class _Files(Dataset[Any]):
    """Whole batches of another dataset's files, which are not decoded yet."""

    def __init__(self, dataset: Writes, shape: Sequence[int]) -> None:
        self.dataset, self.shape = dataset, shape

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, numbers: list[int]) -> _Encoded:
        places = np.empty((len(numbers), *self.shape[:2], 1), np.int32)
        with encoded_images.collected() as files:
            targets = self.dataset.write(numbers, places)
        return _Encoded(files, *encoded_images.rows_and_columns(places), targets, self.shape)


class _Encoded(NamedTuple):
    """What travels from a worker that decodes nothing."""

    files: list[bytes]
    rows: np.ndarray
    columns: np.ndarray
    targets: np.ndarray
    shape: Sequence[int]

    def pin_memory(self) -> _Encoded:
        """The decoder copies the files itself."""
        return self

    def arrived(self) -> Arrived:
        """The crops, decoded on this process's GPU; on the CPU where it has none."""
        targets = torch.from_numpy(self.targets)
        if not torch.cuda.is_initialized():
            return self._decoded(torch.device("cpu")), targets
        # nvJPEG writes at once, whatever is queued on the current stream, to memory that was freed
        # there. So it gets a stream of its own, which has nothing queued (pytorch/vision, 9606).
        decoding, computing = _decoding(), torch.cuda.current_stream()
        decoding.synchronize()
        with torch.cuda.stream(decoding):
            pixels = self._decoded(torch.device("cuda"))
        computing.wait_stream(decoding)
        pixels.record_stream(computing)
        return pixels, targets

    def _decoded(self, device: torch.device) -> torch.Tensor:
        planes = self.shape[2]
        mode = ImageReadMode.RGB if planes == 3 else ImageReadMode.GRAY
        if all(self.files):
            files = [torch.frombuffer(bytearray(file), dtype=torch.uint8) for file in self.files]
            images = decode_jpeg(files, mode, device=device)
        else:  # black images of a check
            images = [torch.zeros(planes, *self.shape[:2], dtype=torch.uint8, device=device)]
            images *= len(self.files)
        rows, columns = (
            torch.from_numpy(at).to(device, torch.long) for at in (self.rows, self.columns)
        )
        crops = [
            image[:, at[:, None], to] for image, at, to in zip(images, rows, columns, strict=True)
        ]
        return torch.stack(crops).permute(0, 2, 3, 1)


@cache
def _decoding() -> torch.cuda.Stream:
    """The stream on which this process decodes: memory freed on it is used again by it alone."""
    return torch.cuda.Stream()


def _arrived(batch: Any) -> Arrived:
    return batch.arrived() if isinstance(batch, _Batch | _Encoded) else tuple(batch)


def _as_it_is(batch: Any) -> Any:
    return batch
