"""What a process has to know to do its part of a run."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace

import numpy as np

import gpumon
from helpers.recipe import ScaledRecipe
from helpers.training.image_data import Data
from helpers.training.stopwatch import stopwatch
from helpers.training.world import Share, TrainingFunctions, World


@dataclass(frozen=True)
class Work:
    """What a process has to know to do its part."""

    framework: ModuleType
    functions: TrainingFunctions
    images: Data
    recipe: ScaledRecipe
    workers: int
    monitor: gpumon.Monitor

    def watch(self, world: World) -> AbstractContextManager[SimpleNamespace]:
        """A stopwatch that waits for this process's devices at its ends."""
        return stopwatch(lambda: self.framework.synchronize(world.devices))

    def ahead(self, world: World) -> int:
        """Batches that this process's training loader may have ready."""
        ahead = self.functions.read_ahead
        return ahead * -(-self.workers // world.processes) if ahead > 0 else -ahead

    def noise(self, world: World, size: int) -> list[Share]:
        """``size`` images of noise, without findings or of the first class, for each own device."""
        random = np.random.default_rng(self.recipe.recipe.seed)
        shape = (size, self.recipe.recipe.crop, self.recipe.recipe.crop, self.images.planes)
        pixels = random.integers(0, 256, shape, dtype=np.uint8)
        targets = np.zeros_like(self.images.targets(self.images.train[:1])).repeat(size, axis=0)
        return [(pixels, targets)] * len(world.devices)
