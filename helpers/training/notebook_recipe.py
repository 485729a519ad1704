"""The recipe and the splits of the images, as a notebook reads them from ``run``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from helpers.recipe import ScaledRecipe
from helpers.training.image_data import Data


@dataclass
class NotebookRecipe:
    """``r = run.recipe``: the recipe's settings, one attribute each.

    ``batch_size`` is images per device, ``learning_rate`` that of one device, ``steps`` the
    optimiser steps of an epoch on all devices, ``crop`` pixels a side, ``outputs`` the number of
    findings or classes. ``mean`` and ``std`` normalise the three channels of an image in [0, 1].
    """

    name: str
    network: str
    outputs: int
    task: str  # "multilabel" (a sigmoid for each finding) or "multiclass" (one softmax)
    crop: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    epochs: int
    steps: int
    batch_size: int
    learning_rate: float
    lr_scaling: str  # with the number of devices: "linear", "sqrt" or "none"
    optimizer: str  # "adam" or "sgd"
    betas: tuple[float, float]
    epsilon: float
    momentum: float
    weight_decay: float  # added to the gradient of every weight
    precision: str  # "fp32", "tf32", "bf16" or "fp16"
    execution: str  # "default", "eager" or "compiled"
    seed: int
    warmup_steps: float = 0.0
    milestones: tuple[int, ...] = ()  # steps from which the rate is multiplied by gamma
    gamma: float = 1.0
    rates: Sequence[float] | None = None  # of the fairness check's steps

    def factor(self, step: int, scale: float) -> float:
        """The learning rate of a step, divided by the scaled rate, for a schedule.

        Args:
            step: from 0, over all epochs.
            scale: by what all devices together train faster than one. A warm-up climbs from the
                rate of one device, a share of 1 / scale, to that of all.
        """
        if self.rates is not None:
            return self.rates[min(step, len(self.rates) - 1)]
        share = 1.0
        if step < self.warmup_steps:
            share = (1 + (scale - 1) * step / self.warmup_steps) / scale
        return share * self.gamma ** sum(step >= each for each in self.milestones)

    @contextmanager
    def varied(self, **changes: Any) -> Iterator[None]:
        """Other settings for a while: the fairness check's."""
        before = {name: getattr(self, name) for name in changes}
        vars(self).update(changes)
        try:
            yield
        finally:
            vars(self).update(before)


def of(scaled: ScaledRecipe, images: Data) -> NotebookRecipe:
    """A recipe that is scaled to all devices, for these images."""
    recipe, steps = scaled.recipe, scaled.steps(len(images.train))
    named = (field.name for field in fields(NotebookRecipe))
    settings = {name: getattr(recipe, name) for name in named if hasattr(recipe, name)}
    settings |= {
        "outputs": len(images.classes),
        "steps": steps,
        "betas": recipe.adam_betas,
        "epsilon": recipe.adam_epsilon,
        "momentum": recipe.rule.momentum,
        "warmup_steps": recipe.warmup_epochs * steps,
        "milestones": tuple(epoch * steps for epoch in recipe.lr_milestones),
        "gamma": recipe.lr_gamma,
    }
    return NotebookRecipe(**settings)


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
        """Image number ``i`` of the split, uint8 (height, width, 1 or 3).

        Raises:
            DataError: its file is damaged.
        """
        return self.reader(self.rows[i])


def split(images: Data, name: str) -> Split:
    """A split by its name: ``train``, ``valid`` or ``test``."""
    table = getattr(images, name)
    return Split(table["row"].tolist(), images.targets(table), images.read)
