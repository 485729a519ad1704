"""The work of ``helpers.run.Run`` before and around a training: start, devices, weights, record."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
from IPython.display import display

from helpers import record
from helpers.errors import UserError
from helpers.frameworks import (
    cpu_cores,
    networks_of,
    rank_info,
)
from helpers.launch import exchange, samplers
from helpers.networks import custom, weights
from helpers.networks.weights import Weights
from helpers.record import tasks
from helpers.training import (
    heartbeat,
    image_data,
    notebook_recipe,
    other_programs,
    run_plots,
    run_tables,
)
from helpers.training.run_state import RunState

_LAST: dict[int, RunState] = {}
"""The run that began last, of each notebook: by the identity of its ``globals()``."""


def began(run: RunState) -> None:
    """Remember that this run began last in its notebook."""
    _LAST[id(run.names)] = run


def end_last(names: Mapping[str, Any]) -> None:
    """End the notebook's last run, if there is one: the parameters' cell may have set run anew."""
    if id(names) in _LAST:
        end(_LAST[id(names)])


def prepare(run: RunState) -> None:
    """Give a new run what its class documents, and begin its record."""
    setup, here = run.setup, rank_info.here()
    run.folder = setup.folder
    run.on_gpu = setup.devices.kind == "gpu"
    run.workers = -(-setup.workers // setup.replicas)
    run.backend = "nccl" if run.on_gpu else "gloo"
    with exchange.first_rank_first():
        run.images = image_data.load_data(setup)
    run.recipe = notebook_recipe.of(setup.recipe, run.images)
    run.train_part = notebook_recipe.part(run.images, "train")
    run.valid_part = notebook_recipe.part(run.images, "valid")
    run.test_part = notebook_recipe.part(run.images, "test")
    run.rank = 0 if here is None else here.rank
    # Drawn live, except in an experiment, which runs unattended and is measured.
    run.monitor = samplers.of_process(setup.folder, live=not heartbeat.watched())
    # Simulated nodes have the same cores: each would take the others for other programs.
    apart = setup.nodes == 1 or not setup.simulated_nodes
    run.others = other_programs.Watch(setup.own_cpus if apart else ())
    run.record = record.start(
        setup.folder,
        notebook=run.notebook.stem,
        framework=run.framework.NAME,
        kernel=run.framework.KERNEL,
        versions=run.framework.versions(),
        devices=setup.of_all_nodes,
        recipe=setup.recipe,
        skipped=run.framework.SKIPPED,
        file=run.notebook,
    )
    if here is not None and here.about:
        run.record.add("cluster", dict(here.about))


def described(run: RunState) -> str:
    """Versions, devices, recipe and images, one line each."""
    setup = run.setup
    versions = ", ".join(f"{name} {each}" for name, each in run.framework.versions().items())
    devices = setup.devices if setup.nodes == 1 else f"{setup.short}. Each: {setup.devices}"
    parts = {"training": run.train_part, "validation": run.valid_part, "test": run.test_part}
    images = ", ".join(f"{len(part):,} {name}" for name, part in parts.items())
    return f"{versions}\n{devices}\n{setup.recipe}\nImages: {images}\n{run.initial}"


def initial(run: RunState) -> Weights:
    """Find the initial weights, or make them; not before the notebook has joined its processes."""
    recipe, outputs = run.setup.recipe.recipe, len(run.images.classes)
    if recipe.network == "own":
        found = exchange.of_first(custom.initial(run.framework, recipe, outputs))
    else:
        with exchange.first_rank_first():  # it may download them
            found = weights.canonical(
                recipe.weights, network=recipe.network, outputs=outputs, seed=recipe.seed
            )
    run.record.add("weights", found.as_record())
    return found


def network(run: RunState) -> Any:
    module = networks_of(run.framework.__name__.rpartition(".")[2])
    networks = import_module(f"helpers.networks.{module}")
    recipe = run.setup.recipe.recipe
    return networks.build(recipe.network, run.initial_arrays, recipe, run.recipe.outputs)


def own_device(run: RunState, rank: int) -> Any:
    here, devices = rank_info.here(), run.setup.devices
    local = rank if here is None else here.local_rank
    if devices.cpus:
        cpu_cores.confine(devices.cpus[local : local + 1])
    run.framework.configure(run.recipe.precision, devices.kind)
    threads = len(os.sched_getaffinity(0)) if devices.cpus else None
    run.own_devices = (run.devices[local],)
    run.framework.make_current(run.devices[local], threads)
    return run.devices[local]


def add(run: RunState, section: str, content: Any) -> None:
    run.record.add(section, content)


def remove(run: RunState, *sections: str) -> None:
    run.record.remove(*sections)


def show(run: RunState, table: Any) -> None:
    run_tables.show(table)


def say(run: RunState, text: str) -> None:
    print(text, end="", flush=True)


def progress(run: RunState, row: Any) -> None:
    run.lines.heard(row)


def trained(run: RunState, history: list[dict[str, Any]], held: int | None) -> None:
    run.held = held
    display(run_plots.learning(history, tasks.TASKS[run.images.task]))
    run_tables.show(run_tables.epochs(history))


def tested(run: RunState, targets: np.ndarray, scores: np.ndarray, result: Any) -> None:
    print(result)
    if run.images.task == tasks.MULTILABEL.name:
        display(run_plots.roc(targets, scores, result))
    run_tables.show(result.table.round(3).astype(object).where(result.table.notna(), "-"))


def check_parameters(run: RunState) -> None:
    """Check that the parameters are still those with which the run began.

    Raises:
        UserError: a parameter was changed since.
    """
    for name, was in run.given.items():
        now = run.names.get(name, was)
        if name != "run" and repr(now) != repr(was):
            raise UserError(
                f"{name} is now {now!r} and was {was!r} when helpers.begin ran: run that cell again"
            )


def end(run: RunState) -> None:
    """Stop the monitor and close the record; the notebook's names are let go."""
    for key in [key for key, last in _LAST.items() if last is run]:
        del _LAST[key]
    samplers.stop(run.monitor)
    run.record.close()
