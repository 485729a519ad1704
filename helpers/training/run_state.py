"""The state of a run, and how it begins: by its notebook's parameters, resolved on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from helpers import record
from helpers.errors import UnsupportedError, UserError
from helpers.frameworks import (
    ROWS,
    cpu_cores,
    libraries,
    networks_of,
    original,
    rank_info,
    replicas,
    row_of,
    why_not,
)
from helpers.frameworks import devices as device_helpers
from helpers.launch import torchrun
from helpers.record import this_notebook
from helpers.training import (
    epoch_lines,
    image_data,
    notebook_recipe,
    other_programs,
    parameters,
    samplers,
)
from helpers.training.parameters import Setup

if TYPE_CHECKING:
    from helpers.frameworks.interface import Found
    from helpers.training.checkpoint import Checkpoint

R = TypeVar("R", bound="RunState")
PARAMETERS: dict[str, Any] = parameters.resolve.__kwdefaults__ or {}
"""What a notebook's parameters cell may set apart from ``resume``, with the defaults."""


class RunState:
    """A run as the library sees it; ``helpers.run.Run`` has what a notebook calls, too.

    ``own_devices`` are this process's. ``other_arrays`` take the place of the initial weights
    during the fairness check. ``names`` are the notebook's ``globals()``, ``given`` its parameters.
    ``launched`` says whether ``run.launch`` starts the processes, ``begun`` whether a training has
    begun of which no epoch was asked for yet, ``held`` the most bytes of a device in training. Only
    the notebook's process has ``names``, ``record`` and ``lines``.
    """

    last: ClassVar[dict[int, RunState]] = {}
    """The run that began last, of each notebook: by the identity of its ``globals()``."""
    start: Checkpoint
    lines: epoch_lines.EpochLines
    loop: Any
    initial: Any

    def __init__(self, framework: ModuleType, names: Mapping[str, Any], values: Any) -> None:
        notebook = this_notebook.find(values)
        self.framework, self.names, here = framework, names, rank_info.here()
        if not isinstance(resume := values.get("resume", False), bool):
            raise UserError(f"resume is {resume!r}: give True or False")
        self.given = {name: values.get(name, default) for name, default in PARAMETERS.items()}
        self.given["resume"] = resume
        self.setup = setup = _set_up(framework, notebook.stem, self.given)
        kind = setup.devices.kind
        self.devices = self.own_devices = tuple(framework.list_devices(kind, setup.devices.count))
        framework.configure(setup.recipe.recipe.precision, kind)
        self.notebook, self.folder, self.on_gpu = notebook.stem, setup.folder, kind == "gpu"
        self.workers = -(-setup.workers // setup.replicas)
        self.backend = "nccl" if self.on_gpu else "gloo"
        self.rank = 0 if here is None else here.rank
        self.launched = self.begun = False
        self.held: int | None = None
        self.other_arrays: Mapping[str, np.ndarray] | None = None
        with rank_info.first_rank_first():
            self.images = image_data.load_data(recipe := setup.recipe.recipe, setup.data)
        self.recipe = notebook_recipe.NotebookRecipe(
            **vars(recipe),
            outputs=len(self.images.classes),
            steps=setup.recipe.steps(len(self.images.train)),
            betas=recipe.adam_betas,
            epsilon=recipe.adam_epsilon,
        )
        self.train_split = notebook_recipe.split(self.images, "train")
        self.valid_split = notebook_recipe.split(self.images, "valid")
        self.test_split = notebook_recipe.split(self.images, "test")
        # Drawn live, except in an experiment, which runs unattended and is measured.
        self.monitor = samplers.of_process(setup.folder, live=not epoch_lines.watched())
        self.others = other_programs.Watch(setup.own_cpus)
        module = framework.__name__.rpartition(".")[2]
        row = next(row for row in ROWS if row.module == module)
        self.record = record.start(
            setup.folder,
            notebook=notebook,
            framework=row.framework,
            kernel=row.kernel,
            versions=framework.versions(),
            devices=setup.of_all_nodes,
            recipe=setup.recipe,
        )
        if here is not None and here.about:
            self.record.add("cluster", dict(here.about))

    @property
    def initial_arrays(self) -> Mapping[str, np.ndarray]:
        """The arrays with which a network is built now."""
        return self.initial.arrays if self.other_arrays is None else self.other_arrays

    def gather(self, value: Any) -> list[Any]:
        """Every process's value, in their order, in each of them; a launch's by the framework."""
        found: list[Any] = (self.framework.gather if self.launched else rank_info.exchange)(value)
        return found

    def apart(self, function: Callable[[], Found]) -> Found:
        """What a function returns that uses devices, which another process starts if need be."""
        found: Callable[..., Found] | None = getattr(self.framework, "apart", None)
        return function() if found is None else found(function, self.own_devices)

    def tell(self, function: Callable[..., None], *args: Any) -> None:
        """From rank 0, let the notebook's process call ``function(run, *args)``."""
        if self.rank == 0 and replicas.in_one():
            replicas.tell((function, args))
        elif self.rank == 0:
            function(self, *args)

    def end(self) -> None:
        """Stop the monitor and close the record; the notebook's names are let go."""
        self.last.pop(id(self.names), None)
        samplers.stop(self.monitor)
        self.record.close()


def begin(kind: Callable[..., R], framework: str, names: Mapping[str, Any]) -> R:
    """See :func:`helpers.begin`; ``kind`` is the class of the run."""
    values = dict(names)
    if isinstance(before := values.get("run"), RunState):
        values["run"] = before.given["run"]
    if id(names) in RunState.last:  # the parameters' cell may have set ``run`` anew
        RunState.last[id(names)].end()
    if torchrun.started_this():
        torchrun.join(values)
    if framework in libraries.WITHOUT_SWITCH:  # it is read as libraries are loaded
        libraries.allow_tf32(device_helpers.precision(values.get("precision", "auto")) != "fp32")
    module = import_module(f"helpers.frameworks.{framework}")
    run = RunState.last[id(names)] = kind(module, names, values)
    row = row_of(run.notebook)
    if rank_info.here() is None and row is not None and row.rank_a_device:
        replicas.warm_up()
    return run


def _set_up(framework: ModuleType, notebook: str, given: Mapping[str, Any]) -> Setup:
    """The parameters resolved, for this process's part of the devices."""
    here, module = rank_info.here(), framework.__name__.rpartition(".")[2]
    row = row_of(shipped := original(notebook, module))
    if here is None and (why := row.ranks_only if row else ""):
        raise UserError(
            f"{why}, which a launcher starts: in a terminal run: rosetta run "
            f"--notebooks {notebook} --devices N"
        )
    nodes, virtual = (1, False) if here is None else (here.nodes, here.virtual)
    with rank_info.first_rank_first():  # it may generate images
        setup = parameters.resolve(
            notebook,
            networks_of(module),
            nodes,
            virtual,
            **{name: given[name] for name in PARAMETERS},
        )
    if why := why_not(shipped, setup.nodes, setup.recipe.recipe.execution):
        raise UnsupportedError(why)
    if cpus := setup.devices.cpus:  # before the framework starts its threads
        alone = here is not None and here.ranks_a_node == len(cpus)  # a rank for each device
        mine = cpus[here.local_rank : here.local_rank + 1] if here and alone else cpus
        cpu_cores.confine(mine)
        every = tuple(cpu for each in rank_info.exchange(mine) for cpu in each)
        setup = replace(setup, own_cpus=mine, cpus_of_nodes=every)
    return setup
