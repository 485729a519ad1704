"""A pool of reusable buffers for batches in memory that workers share.

A batch is passed on without a copy. Its buffer is free again once no array refers to it any more.
A caller that keeps many batches gets copies, so that a buffer is always free for writing.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

import numpy as np

AHEAD = 2
"""Batches for each worker that are ready or in work, as PyTorch and Gluon have it by default."""
LENT = 3
"""Batches that are handed on where they lie: one that is trained on, the next, and one on its
way."""


def requested(workers: int) -> int:
    """The most batches that are asked for and have not come."""
    return AHEAD * workers + 1  # one more is asked for before the first is taken


class Writes(Protocol):
    """A dataset that writes the pixels of a batch into given memory."""

    def __len__(self) -> int:
        """The number of its images."""

    def write(self, numbers: list[int], pixels: np.ndarray) -> np.ndarray:
        """Write these images into ``pixels``, uint8 (images, H, W, planes); their targets."""


class Places:
    """Which of the places in a block of memory are free; only the process that asks knows."""

    def __init__(self, memory: np.ndarray, asked: int) -> None:
        """``memory``: (places, images, H, W, planes), with ``asked`` + ``LENT`` places or more;
        ``asked``: the most batches that are asked for and have not come."""
        assert len(memory) >= asked + LENT
        self.memory, self.most = memory, asked
        self.free = deque(range(len(memory)))
        self.coming: set[int] = set()

    def take(self) -> int:
        """A place for a batch that is asked for now."""
        place = self.free.popleft()
        self.coming.add(place)
        return place

    def give_back(self, place: int) -> None:
        """What came there is not needed any more."""
        self.coming.discard(place)
        self.free.append(place)

    def give_back_coming(self) -> None:
        """Free the requested buffers, which no process writes or reads any more."""
        for place in list(self.coming):
            self.give_back(place)

    def arrived(self, place: int, images: int) -> np.ndarray:
        """The images that have come there: the caller's own, as long as it has them."""
        pixels = self.memory[place, :images]
        if len(self.free) + len(self.coming) > self.most:
            self.coming.discard(place)
            return np.asarray(_Lent(self, place, pixels))
        pixels = pixels.copy()
        self.give_back(place)
        return pixels


class _Lent:
    """What an array has for its memory: when the last such array is gone, the place is free."""

    def __init__(self, places: Places, place: int, pixels: np.ndarray) -> None:
        self.places, self.place = places, place
        self.__array_interface__ = pixels.__array_interface__

    def __del__(self) -> None:
        self.places.free.append(self.place)
