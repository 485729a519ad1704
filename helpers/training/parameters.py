"""Resolve the values of a notebook's parameters cell, often ``auto``, to a run's settings."""

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from data_prep.files import core_count
from helpers import paths
from helpers.errors import UnsupportedError, UserError
from helpers.frameworks import cpu_cores
from helpers.frameworks import devices as device_helpers
from helpers.frameworks.devices import Devices
from helpers.launch import launchers
from helpers.recipe import lookup
from helpers.training.image_data import fit_to_images
from helpers.training.image_folders import prepare_data
from helpers.training.setup import Setup

BY_HAND = "interactive"
"""The folder under ``runs/`` of runs outside an experiment."""
MOST_WARMUP = 1e9
"""Epochs; what a batch's journal can say."""
NUMBERS: Mapping[str, tuple[int, int, tuple[str, ...]]] = {
    "seed": (0, 2**31 - 1, ()),
    "repeats": (1, 2**31 - 1, ()),
    "epochs": (1, 2**31 - 1, ("default",)),
    "batch_size": (1, 2**31 - 1, ("default",)),
    "nodes": (1, launchers.MOST_NODES, ()),
    # More is a slip of the keyboard, which would start as many processes.
    "num_workers": (0, 1024, ("default",)),
}
"""The minimum and maximum of a parameter, and the words that it may be instead."""


def resolve(
    notebook: str,
    framework: str = "",
    *,
    recipe: str = "auto",
    data: str | Path = "auto",
    devices: int | str = "auto",
    run: str | Path = "auto",
    seed: int = 0,
    precision: str = "auto",
    execution: str = "default",
    num_workers: int | str = "default",
    batch_size: int | str = "default",
    epochs: int | str = "default",
    warmup_epochs: float | str = "default",
    cores_per_device: int | str = "auto",
    loader_cores: str = "default",
    nodes: int = 1,
    simulated_nodes: bool = False,
) -> Setup:
    """Fill in every ``auto``, prepare the data if it is missing, and scale the recipe.

    docs/notebooks.md describes the parameters.

    Args:
        notebook: what its runs' folders begin with.
        framework: the module of ``helpers.frameworks`` that is to train, if one is.
        nodes: how many machines, as the launcher of the run's ranks has it.
        simulated_nodes: whether these are all this one.

    Raises:
        UserError, data_prep.DataError: what was asked for cannot be had, or has a mistake.
        UnsupportedError: the recipe has no network for this framework.
    """
    for what, name in {"recipe": recipe, "data": data, "run": run}.items():
        if not isinstance(name, str | Path):
            raise UserError(f"{what} is {name!r}: give a name in quotes, or 'auto'")
    seed = int(check_number("seed", seed))
    if simulated_nodes:
        cores_per_device = cpu_cores.SHARED
    found = device_helpers.resolve(devices, cores_per_device)
    if found.kind == "gpu":  # the driver's order, as above; CUDA puts the fastest of them first
        os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    if recipe == "auto":
        recipe = "chexnet" if found.kind == "gpu" else "demo"
    warmup = epochs_of_warmup(warmup_epochs)
    changes = {"seed": seed, "precision": device_helpers.precision(precision)}
    if execution != "default":
        changes["execution"] = execution
    chosen = lookup(recipe, demo=found.kind == "cpu", **changes)
    if framework and (reason := chosen.lacks(framework)):
        raise UnsupportedError(reason)
    if isinstance(warmup, float):
        chosen = replace(chosen, warmup_epochs=warmup)
    if loader_cores != "default":
        chosen = replace(chosen, loader_cores=loader_cores)  # type: ignore[arg-type]  # see below
    if found.cpus and chosen.loader_cores != cpu_cores.ON_DEVICE:
        found = device_helpers.resolve(devices, cores_per_device, chosen.loader_cores)
    images, epochs = check_number("batch_size", batch_size), check_number("epochs", epochs)
    each = check_number("num_workers", num_workers)
    if isinstance(images, int):
        chosen = chosen.with_batch_size(images)
    if isinstance(epochs, int):
        chosen = replace(chosen, epochs=epochs)
    folder = prepare_data(chosen, chosen.folder if data == "auto" else data)
    chosen = fit_to_images(chosen, folder)
    if run == "auto":
        name = device_helpers.run_name(notebook, found.count, nodes)
        run = paths.RUNS / BY_HAND / name
    return Setup(
        found,
        chosen.on(nodes * found.count),
        folder,
        Path(run).resolve(),
        each * found.count * nodes
        if isinstance(each, int)
        else default_workers(found, nodes, nodes == 1 or simulated_nodes),
        nodes=nodes,
        simulated_nodes=simulated_nodes,
    )


def default_workers(devices: Devices, nodes: int = 1, virtual: bool = True) -> int:
    """Up to 8 loader workers a device, and no more than there are CPU cores for them.

    The number is for all nodes together; simulated nodes share this machine's cores.
    """
    if devices.cpus:
        return nodes * sum(min(8, len(cpu.loader_cores)) for cpu in devices.cpus)
    if virtual:
        return min(8 * devices.count * nodes, core_count())
    return nodes * min(8 * devices.count, core_count())


def whole(value: int | str) -> int | None:
    """The whole number a user gave, as a number or as text; None if it is none, as ``true``."""
    try:
        return None if isinstance(value, bool) else int(str(value))
    except ValueError:
        return None


def epochs_of_warmup(value: float | str) -> float | str:
    """How long the learning rate climbs, as a user gave it: a number, or ``default``.

    Raises:
        UserError: it is neither.
    """
    if value == "default":
        return value
    try:
        epochs = float(value)
    except (TypeError, ValueError, OverflowError):
        epochs = math.nan
    if isinstance(value, bool) or not 0 <= epochs <= MOST_WARMUP:
        raise UserError(
            f"warmup_epochs is {value!r}: give a number of epochs from 0 to {MOST_WARMUP:.0f}, "
            "such as 0.5"
        )
    return epochs


def check_number(what: str, value: int | str) -> int | str:
    """A parameter of ``NUMBERS`` as a user gave it: a number, or one of its words.

    Raises:
        UserError: it is neither.
    """
    least, most, words = NUMBERS[what]
    if value in words:
        return value
    number = whole(value)
    if number is None or not least <= number <= most:
        known = f", or {' or '.join(map(repr, words))}" if words else ""
        raise UserError(f"{what} is {value!r}: give a whole number from {least} to {most}{known}")
    return number
