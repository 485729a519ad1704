"""What the functions behind ``helpers.run`` read of a run, and what they keep in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    import gpumon
    from helpers import record
    from helpers.fairness.check_results import Check, FairnessCheck
    from helpers.frameworks.interface import Found
    from helpers.networks.weights import Weights
    from helpers.training import other_programs
    from helpers.training.checkpoint import Checkpoint
    from helpers.training.epoch_lines import EpochLines
    from helpers.training.image_data import Data
    from helpers.training.notebook_recipe import NotebookRecipe, Part
    from helpers.training.setup import Setup
    from helpers.training.step_clock import StepClock


class Noted(Protocol):
    """What a process notes while it trains (``helpers.training.loop``)."""

    fairness: FairnessCheck
    history: list[dict[str, Any]]
    clock: StepClock
    notes: Any
    """A ``training_notes.TrainingNotes``."""
    turn: Any
    """A ``training_notes.TurnNotes`` while a measured turn's loop is noted in it, else None."""
    predict: Any
    """The notebook's, which ``run.check`` was given."""

    @property
    def processes(self) -> int:
        """How many processes train."""

    @property
    def typical_step(self) -> float:
        """Seconds of a step in training."""

    def updated(self, checks: list[Check], seconds: float = 0.0) -> None:
        """Take these rows into the fairness check, and record it."""

    def epochs(self, replica: Any) -> Iterator[int]:
        """The epochs that the checkpoint lacks."""

    def check_trained(self, what: str) -> None:
        """See that there is a training that ended, of these parameters."""


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
    # Only in the notebook's process:
    record: record.Run
    lines: EpochLines
    monitor: gpumon.Monitor | gpumon.Marker

    @property
    def loop(self) -> Noted:
        """What this process notes while it trains."""
        raise NotImplementedError

    @property
    def initial(self) -> Weights:
        """The initial weights."""
        raise NotImplementedError

    @property
    def initial_arrays(self) -> Mapping[str, np.ndarray]:
        """Those that a network is built with now."""
        return self.initial.arrays if self.other_arrays is None else self.other_arrays

    def gather(self, value: Any) -> list[Any]:
        """Every process's value, in their order, in each of them.

        Args:
            value: what :func:`exchange.exchange` accepts.
        """
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

    def tell(self, method: str, *args: Any) -> None:
        """Let the notebook's process call a function of ``notebook_run``; only rank 0 does."""
        raise NotImplementedError
