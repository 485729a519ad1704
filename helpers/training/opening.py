"""What every run begins with: its notebook's parameters, resolved on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from helpers.errors import UnsupportedError, UserError
from helpers.frameworks import (
    cpu_cores,
    networks_of,
    original,
    rank_info,
    rows_of,
    run_label,
    why_not,
)
from helpers.launch import exchange, this_notebook
from helpers.training import parameters
from helpers.training.setup import Setup

OF_LAUNCHERS = ("nodes", "simulated_nodes")
PARAMETERS = {
    name: parameter.default
    for name, parameter in list(signature(parameters.resolve).parameters.items())[2:]
    if name not in OF_LAUNCHERS
}
"""What a notebook's parameters cell may set apart from ``resume``, with the defaults."""


class Opened(NamedTuple):
    """A run's notebook, what it uses, the framework's devices and the parameters as given."""

    notebook: Path
    setup: Setup
    devices: tuple[Any, ...]
    given: Mapping[str, Any]


def open_run(framework: ModuleType, names: Mapping[str, Any]) -> Opened:
    """Resolve the parameters in a notebook's ``globals()``.

    Args:
        framework: the framework's module of ``helpers.frameworks``.
        names: the notebook's ``globals()``.

    Raises:
        UserError: what was asked for cannot be had, a parameter is misspelt or not set, or the
            notebook's file cannot be found or has another name.
        UnsupportedError: this framework cannot compute in that precision, or on these devices, or
            the recipe has no network for it.
    """
    here, file = rank_info.here(), this_notebook.find(names)
    notebook = file.stem
    own: Mapping[str, Callable[..., Any]] = getattr(framework, "OWN_PARAMETERS", {})
    known = (*PARAMETERS, "resume", *own)
    if wrong := this_notebook.misspelt(file, known, names):
        raise UserError(wrong)
    if missing := [name for name in own if name not in names]:
        raise UserError(f"the parameters cell of {notebook} does not set {', '.join(missing)}")
    if not isinstance(resume := names.get("resume", False), bool):
        raise UserError(f"resume is {resume!r}: give True or False")
    module = framework.__name__.rpartition(".")[2]
    networks, row = networks_of(module), original(notebook, module)
    label = run_label(notebook, framework.KERNEL)
    if (why := rows_of(row)[0].ranks_only if rows_of(row) else "") and here is None:
        raise UserError(
            f"{why}, which a launcher starts: in a terminal run: rosetta run "
            f"--notebooks {notebook} --devices N"
        )
    given = {name: names.get(name, default) for name, default in PARAMETERS.items()}
    nodes, virtual = (1, False) if here is None else (here.nodes, here.virtual)
    with exchange.first_rank_first():  # it may generate images
        setup = parameters.resolve(label, networks, **given, nodes=nodes, simulated_nodes=virtual)
    execution = setup.recipe.recipe.execution
    if why := why_not(row, framework.KERNEL, setup.nodes, execution):
        raise UnsupportedError(why)
    for name, check in own.items():
        check(names[name], setup.devices.kind == "gpu", setup.replicas)
    kind, count = setup.devices.kind, setup.devices.count
    if cpus := setup.devices.cpus:  # before the framework starts its threads
        alone = here is not None and here.ranks_a_node == count  # a rank for each device
        mine = cpus[here.local_rank : here.local_rank + 1] if here and alone else cpus
        cpu_cores.confine(mine)
        of_ranks = exchange.exchange(mine)
        every = tuple(cpu for each in of_ranks for cpu in each)
        setup = replace(setup, own_cpus=mine, cpus_of_nodes=every)
    devices = tuple(framework.list_devices(kind, count))
    framework.configure(setup.recipe.recipe.precision, kind)
    given |= {name: names[name] for name in own} | {"resume": resume}
    return Opened(file, setup, devices, given)
