"""The state of a run, which the functions behind ``helpers.run`` read and change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import gpumon
    from helpers import record
    from helpers.frameworks.interface import Found
    from helpers.training import other_programs
    from helpers.training.checkpoint import Checkpoint
    from helpers.training.epoch_lines import EpochLines
    from helpers.training.image_data import Data
    from helpers.training.notebook_recipe import NotebookRecipe, Part
    from helpers.training.setup import Setup


class RunState:
    """A run as the library sees it; ``helpers.run.Run`` has what a notebook calls, too."""

    notebook: Path
    framework: ModuleType
    setup: Setup
    recipe: NotebookRecipe
    train_part: Part
    valid_part: Part
    test_part: Part
    devices: tuple[Any, ...]
    own_devices: tuple[Any, ...]
    """Those of this process."""
    on_gpu: bool
    workers: int
    backend: str
    folder: Path
    images: Data
    other_arrays: Mapping[str, np.ndarray] | None = None
    """The reference's, during the fairness check, in place of the initial weights."""
    names: Mapping[str, Any]
    """The notebook's ``globals()``."""
    given: Mapping[str, Any]
    """Its parameters, as they were when the run began."""
    rank: int
    launched: bool
    """Whether ``run.launch`` starts the processes, or runs in them."""
    begun: bool
    """Whether a training has begun of which no epoch was asked for yet."""
    start: Checkpoint
    """From where it continues."""
    others: other_programs.Watch
    """What other programs use of its CPU devices."""
    held: int | None
    """The most bytes that a device held in training."""
    loop: Any
    """What this process notes while it trains, a ``loop.Loop``."""
    initial: Any
    """The initial weights, a ``networks.weights.Weights``."""
    # Only in the notebook's process:
    record: record.Run
    lines: EpochLines
    monitor: gpumon.Monitor | gpumon.Marker

    @property
    def initial_arrays(self) -> Mapping[str, np.ndarray]:
        """The arrays with which a network is built now."""
        return self.initial.arrays if self.other_arrays is None else self.other_arrays

    def gather(self, value: Any) -> list[Any]:
        """Every process's value, in their order, in each of them."""
        # Those of a launch by what its main has joined them; ranks that run the whole notebook, and
        # a process that is alone, without the framework.
        from helpers.launch import exchange

        gathered = self.framework.gather if self.launched else exchange.exchange
        found: list[Any] = gathered(value)
        return found

    def apart(self, function: Callable[[], Found]) -> Found:
        """What a function returns that uses the devices, before the notebook does.

        Where the notebook must not have started them yet, another process calls it.
        """
        found: Callable[..., Found] | None = getattr(self.framework, "apart", None)
        return function() if found is None else found(function, self.own_devices)

    def tell(self, function: Callable[..., None], *args: Any) -> None:
        """From rank 0, let the notebook's process call ``function(run, *args)``."""
        from helpers.frameworks import replicas

        if self.rank == 0 and replicas.in_one():
            replicas.tell((function, args))
        elif self.rank == 0:
            function(self, *args)
