"""The state of a run, which the functions behind ``helpers.run`` read and change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from helpers import record
from helpers.errors import UserError
from helpers.frameworks import rank_info, replicas
from helpers.training import heartbeat, image_data, notebook_recipe, other_programs, samplers
from helpers.training.notebook_recipe import NotebookRecipe, Split
from helpers.training.parameters import Setup

if TYPE_CHECKING:
    from helpers.frameworks.interface import Found
    from helpers.training.checkpoint import Checkpoint
    from helpers.training.epoch_lines import EpochLines


class RunState:
    """A run as the library sees it; ``helpers.run.Run`` has what a notebook calls, too.

    ``own_devices`` are those of this process. ``other_arrays`` are the reference's, during the
    fairness check, in place of the initial weights. ``names`` are the notebook's ``globals()``,
    ``given`` its parameters as they were when the run began. ``launched`` says whether
    ``run.launch`` starts the processes, or runs in them; ``begun``, whether a training has begun of
    which no epoch was asked for yet. ``start`` is from where it continues, ``held`` the most bytes
    that a device held in training. Only the notebook's process has ``names``, ``record`` and
    ``lines``.
    """

    last: ClassVar[dict[int, RunState]] = {}
    """The run that began last, of each notebook: by the identity of its ``globals()``."""
    recipe: NotebookRecipe
    train_split: Split
    valid_split: Split
    test_split: Split
    devices: tuple[Any, ...]
    on_gpu: bool
    workers: int
    backend: str
    folder: Path
    start: Checkpoint
    lines: EpochLines
    loop: Any
    initial: Any

    def __init__(
        self,
        notebook: Path,
        framework: ModuleType,
        setup: Setup,
        devices: tuple[Any, ...],
        names: Mapping[str, Any],
        given: Mapping[str, Any],
    ) -> None:
        self.framework, self.setup, self.folder = framework, setup, setup.folder
        self.names, self.given, here = names, given, rank_info.here()
        self.devices = self.own_devices = devices
        self.on_gpu = setup.devices.kind == "gpu"
        self.workers = -(-setup.workers // setup.replicas)
        self.backend = "nccl" if self.on_gpu else "gloo"
        self.rank = 0 if here is None else here.rank
        self.launched = self.begun = False
        self.held: int | None = None
        self.other_arrays: Mapping[str, np.ndarray] | None = None
        with rank_info.first_rank_first():
            self.images = image_data.load_data(setup.recipe.recipe, setup.data)
        self.recipe = notebook_recipe.of(setup.recipe, self.images)
        self.train_split = notebook_recipe.split(self.images, "train")
        self.valid_split = notebook_recipe.split(self.images, "valid")
        self.test_split = notebook_recipe.split(self.images, "test")
        # Drawn live, except in an experiment, which runs unattended and is measured.
        self.monitor = samplers.of_process(setup.folder, live=not heartbeat.watched())
        # Simulated nodes have the same cores: each would take the others for other programs.
        apart = setup.nodes == 1 or not setup.simulated_nodes
        self.others = other_programs.Watch(setup.own_cpus if apart else ())
        self.record = record.start(
            setup.folder,
            notebook=notebook.stem,
            framework=framework.NAME,
            kernel=framework.KERNEL,
            versions=framework.versions(),
            devices=setup.of_all_nodes,
            recipe=setup.recipe,
            skipped=framework.SKIPPED,
            file=notebook,
        )
        if here is not None and here.about:
            self.record.add("cluster", dict(here.about))

    @property
    def initial_arrays(self) -> Mapping[str, np.ndarray]:
        """The arrays with which a network is built now."""
        return self.initial.arrays if self.other_arrays is None else self.other_arrays

    def gather(self, value: Any) -> list[Any]:
        """Every process's value, in their order, in each of them."""
        # Those of a launch by what its main has joined them; ranks that run the whole notebook, and
        # a process that is alone, without the framework.
        gathered = self.framework.gather if self.launched else rank_info.exchange
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
        if self.rank == 0 and replicas.in_one():
            replicas.tell((function, args))
        elif self.rank == 0:
            function(self, *args)

    def check_parameters(self) -> None:
        """Check that the parameters are still those with which the run began.

        Raises:
            UserError: a parameter was changed since.
        """
        for name, was in self.given.items():
            now = self.names.get(name, was)
            if name != "run" and repr(now) != repr(was):
                raise UserError(
                    f"{name} is now {now!r} and was {was!r} when helpers.begin ran: run that cell "
                    "again"
                )

    def end(self) -> None:
        """Stop the monitor and close the record; the notebook's names are let go."""
        self.last.pop(id(self.names), None)
        samplers.stop(self.monitor)
        self.record.close()
