"""Resolve the values of a notebook's parameters cell, often ``auto``, to a run's settings."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from data_prep.files import core_count
from helpers import paths
from helpers.errors import UnsupportedError, UserError
from helpers.frameworks import cpu_cores
from helpers.frameworks import devices as device_helpers
from helpers.frameworks.cpu_cores import CpuDevice
from helpers.frameworks.devices import Devices
from helpers.launch import launchers
from helpers.recipe import ScaledRecipe, lookup
from helpers.training.image_data import fit_to_images
from helpers.training.image_folders import prepare_data

BY_HAND = "interactive"
"""The folder under ``runs/`` of runs outside an experiment."""
DEFAULT = ("default",)
NUMBERS: Mapping[str, tuple[type, float, float, tuple[str, ...]]] = {
    "seed": (int, 0, 2**31 - 1, ()),
    "repeats": (int, 1, 2**31 - 1, ()),
    "epochs": (int, 1, 2**31 - 1, DEFAULT),
    "batch_size": (int, 1, 2**31 - 1, DEFAULT),
    "nodes": (int, 1, launchers.MOST_NODES, ()),
    # More is a slip of the keyboard, which would start as many processes.
    "num_workers": (int, 0, 1024, DEFAULT),
    "warmup_epochs": (float, 0, 1e9, DEFAULT),
}
"""The kind, minimum and maximum of a parameter, and the words that it may be instead."""


@dataclass(frozen=True)
class Setup:
    """What a run uses: devices (of each node), scaled recipe, data and run folder, loader workers.

    ``workers`` serve all devices together. ``own_cpus`` are the CPU devices that this process or
    its replicas drive, ``cpus_of_nodes`` those of all nodes. Simulated nodes are this machine.
    """

    devices: Devices
    recipe: ScaledRecipe
    data: Path | None
    folder: Path
    workers: int
    nodes: int = 1
    simulated_nodes: bool = False
    own_cpus: tuple[CpuDevice, ...] = ()
    cpus_of_nodes: tuple[CpuDevice, ...] = ()

    @property
    def replicas(self) -> int:
        """The devices of all nodes together."""
        return self.nodes * self.devices.count

    @property
    def of_all_nodes(self) -> Devices:
        """The devices of all nodes as one set."""
        each = self.devices
        cpus = each.cpus if self.nodes == 1 else self.cpus_of_nodes
        return Devices(each.kind, each.names * self.nodes, cpus)

    @property
    def short(self) -> str:
        """Their name in a sentence: "4 GPUs", "2 simulated nodes with 2 GPUs each"."""
        if self.nodes == 1:
            return self.devices.short
        nodes = f"{self.nodes} {'simulated ' * self.simulated_nodes}nodes"
        return f"{nodes} with {self.devices.short} each"


def resolve(
    notebook: str,
    framework: str = "",
    nodes: int = 1,
    simulated_nodes: bool = False,
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
) -> Setup:
    """Fill in every ``auto``, prepare the data if it is missing, and scale the recipe.

    docs/notebooks.md describes the parameters; ``framework`` is the module that is to train.

    Raises:
        UserError, data_prep.DataError: what was asked for cannot be had, or has a mistake.
        UnsupportedError: the recipe has no network for this framework.
    """
    for what, name in {"recipe": recipe, "data": data, "run": run}.items():
        if not isinstance(name, str | Path):
            raise UserError(f"{what} is {name!r}: give a name in quotes, or 'auto'")
    cores_per_device = cpu_cores.SHARED if simulated_nodes else cores_per_device
    found = device_helpers.resolve(devices, cores_per_device)
    if found.kind == "gpu":  # the driver's order, as above; CUDA puts the fastest of them first
        os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    if recipe == "auto":
        recipe = "chexnet" if found.kind == "gpu" else "demo"
    asked = {
        "warmup_epochs": check_number("warmup_epochs", warmup_epochs),
        "epochs": check_number("epochs", epochs),
        "execution": execution,
        "seed": int(check_number("seed", seed)),
    }
    changes = {name: value for name, value in asked.items() if value != "default"}
    changes["precision"] = device_helpers.precision(precision)
    chosen = lookup(recipe, demo=found.kind == "cpu", **changes)
    if framework and (reason := chosen.lacks(framework)):
        raise UnsupportedError(reason)
    each = check_number("num_workers", num_workers)
    if isinstance(images := check_number("batch_size", batch_size), int):
        chosen = chosen.with_batch_size(images)
    folder = prepare_data(chosen, chosen.folder if data == "auto" else data)
    chosen = fit_to_images(chosen, folder)
    if run == "auto":
        run = paths.RUNS / BY_HAND / device_helpers.run_name(notebook, found.count, nodes)
    workers = default_workers(found, nodes, nodes == 1 or simulated_nodes)
    if isinstance(each, int):
        workers = each * found.count * nodes
    scaled, own = chosen.on(nodes * found.count), Path(run).resolve()
    return Setup(found, scaled, folder, own, workers, nodes, simulated_nodes)


def default_workers(devices: Devices, nodes: int = 1, virtual: bool = True) -> int:
    """Up to 8 loader workers for each device of all nodes, and no more than there are cores."""
    if devices.cpus:
        return nodes * sum(min(8, len(cpu.cores)) for cpu in devices.cpus)
    machines = 1 if virtual else nodes
    return machines * min(8 * devices.count * nodes // machines, core_count())


def check_number(what: str, value: float | str) -> float | str:
    """A parameter of ``NUMBERS``: a number, or one of its words; else raises UserError."""
    kind, least, most, words = NUMBERS[what]
    if value in words:
        return value
    try:
        number = None if isinstance(value, bool) else kind(str(value))
    except ValueError:
        number = None
    if number is None or not least <= number <= most:  # NaN neither
        number = "whole number" if kind is int else "number of epochs"
        known = f", or {' or '.join(map(repr, words))}" if words else ""
        raise UserError(f"{what} is {value!r}: give a {number} from {least} to {most:.0f}{known}")
    return number
