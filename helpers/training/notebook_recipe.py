"""The recipe and the splits of the images, as a notebook reads them from ``run``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from helpers.recipe import Recipe
from helpers.training.image_data import Data


@dataclass(frozen=True, kw_only=True)
class NotebookRecipe(Recipe):
    """``r = run.recipe``: the recipe's settings, and what follows from images and devices.

    ``batch_size`` and ``learning_rate`` are one device's, ``steps`` the optimiser steps of an epoch
    on all devices, ``outputs`` the number of findings or classes.
    """

    outputs: int
    steps: int
    betas: tuple[float, float]
    epsilon: float
    rates: Sequence[float] | None = None  # of the fairness check's steps

    def factor(self, step: int, scale: float) -> float:
        """The learning rate of a step, from 0 over all epochs, divided by the scaled rate.

        ``scale`` is by what all devices together train faster than one: a warm-up climbs from
        1 / scale, the rate of one device.
        """
        if self.rates is not None:
            return self.rates[min(step, len(self.rates) - 1)]
        share, warmup = 1.0, self.warmup_epochs * self.steps
        if step < warmup:
            share = (1 + (scale - 1) * step / warmup) / scale
        return share * self.lr_gamma ** sum(step >= e * self.steps for e in self.lr_milestones)

    @contextmanager
    def varied(self, **changes: Any) -> Iterator[None]:
        """Other settings for a while: the fairness check's."""
        before = {name: getattr(self, name) for name in changes}
        vars(self).update(changes)
        try:
            yield
        finally:
            vars(self).update(before)


@dataclass(frozen=True)
class Split:
    """A split of the images: ``len(split)``, ``split.read(i)`` and ``split.targets[i]``.

    ``targets`` are float32 (images, findings) of 0 and 1, or the classes' numbers, int64 (images,).
    """

    rows: Sequence[Any]
    targets: np.ndarray
    reader: Callable[[Any], np.ndarray]

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, i: int) -> np.ndarray:
        """Image number ``i``, uint8 (height, width, 1 or 3); DataError if its file is damaged."""
        return self.reader(self.rows[i])


def split(images: Data, name: str) -> Split:
    """A split by its name: ``train``, ``valid`` or ``test``."""
    table = getattr(images, name)
    return Split(table["row"].tolist(), images.targets(table), images.read)
