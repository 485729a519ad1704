"""How a run begins: by its notebook's parameters, resolved on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from inspect import signature
from types import ModuleType
from typing import Any, TypeVar

from helpers.errors import UnsupportedError, UserError, unknown
from helpers.frameworks import (
    ROWS,
    cpu_cores,
    networks_of,
    original,
    precisions,
    rank_info,
    replicas,
    row_of,
    why_not,
)
from helpers.frameworks import devices as device_helpers
from helpers.launch import torchrun
from helpers.record import this_notebook
from helpers.training import parameters
from helpers.training.parameters import Setup
from helpers.training.run_state import RunState

R = TypeVar("R", bound=RunState)
OF_LAUNCHERS = ("nodes", "simulated_nodes")
PARAMETERS = {
    name: parameter.default
    for name, parameter in list(signature(parameters.resolve).parameters.items())[2:]
    if name not in OF_LAUNCHERS
}
"""What a notebook's parameters cell may set apart from ``resume``, with the defaults."""


def begin(kind: Callable[..., R], framework: str, names: Mapping[str, Any]) -> R:
    """See :func:`helpers.begin`; ``kind`` is the class of the run."""
    modules = sorted({row.module for row in ROWS})
    if framework not in modules:
        raise UserError(unknown("framework", framework, modules))
    values = dict(names)
    if isinstance(before := values.get("run"), RunState):
        values["run"] = before.given["run"]
    if id(names) in RunState.last:  # the parameters' cell may have set ``run`` anew
        RunState.last[id(names)].end()
    if torchrun.started_this():
        torchrun.join(values)
    if framework in precisions.WITHOUT_SWITCH:  # it is read as libraries are loaded
        precisions.allow_tf32(device_helpers.precision(values.get("precision", "auto")) != "fp32")
    module, file = import_module(f"helpers.frameworks.{framework}"), this_notebook.find(values)
    given = _given(module, file.stem, values)
    setup = _set_up(module, file.stem, given)
    devices = tuple(module.list_devices(setup.devices.kind, setup.devices.count))
    module.configure(setup.recipe.recipe.precision, setup.devices.kind)
    if "devices" in names:  # of torchrun's ranks, which may be auto
        given["devices"] = names["devices"]
    run = RunState.last[id(names)] = kind(file, module, setup, devices, names, given)
    row = row_of(file.stem)
    if rank_info.here() is None and row is not None and row.rank_a_device:
        replicas.warm_up()
    return run


def _given(framework: ModuleType, notebook: str, names: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters in a notebook's ``globals()``, and the defaults of those it does not set."""
    own: Mapping[str, Any] = getattr(framework, "OWN_PARAMETERS", {})
    if missing := [name for name in own if name not in names]:
        raise UserError(f"the parameters cell of {notebook} does not set {', '.join(missing)}")
    if not isinstance(resume := names.get("resume", False), bool):
        raise UserError(f"resume is {resume!r}: give True or False")
    known = {name: names.get(name, default) for name, default in PARAMETERS.items()}
    return known | {name: names[name] for name in own} | {"resume": resume}


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
            **{name: given[name] for name in PARAMETERS},
            nodes=nodes,
            simulated_nodes=virtual,
        )
    execution = setup.recipe.recipe.execution
    if why := why_not(shipped, setup.nodes, execution):
        raise UnsupportedError(why)
    for name, check in getattr(framework, "OWN_PARAMETERS", {}).items():
        check(given[name], setup.devices.kind == "gpu", setup.replicas)
    if cpus := setup.devices.cpus:  # before the framework starts its threads
        alone = here is not None and here.ranks_a_node == len(cpus)  # a rank for each device
        mine = cpus[here.local_rank : here.local_rank + 1] if here and alone else cpus
        cpu_cores.confine(mine)
        every = tuple(cpu for each in rank_info.exchange(mine) for cpu in each)
        setup = replace(setup, own_cpus=mine, cpus_of_nodes=every)
    return setup
