"""From the notebook's parameters cell, where most things say ``auto``, to what a run uses."""

import math
import os
from dataclasses import dataclass
from pathlib import Path

from helpers import paths
from helpers.errors import UserError
from helpers.frameworks import devices as device_helpers
from helpers.frameworks.devices import Devices
from helpers.recipe import ScaledRecipe, lookup
from helpers.training import loader_workers
from helpers.training.image_data import fit_to_images, prepare_data

MOST_WARMUP = 1e9
"""Epochs; what a batch's journal can say."""


@dataclass(frozen=True)
class Setup:
    """What a run uses: devices, scaled recipe, data folder, run folder and loader workers.

    ``workers`` serve all devices together. ``measure_workers`` and ``search_batch`` say that the
    notebook is to find the best number, or the largest batch that fits, before it trains.
    """

    devices: Devices
    recipe: ScaledRecipe
    data: Path
    folder: Path
    workers: int
    measure_workers: bool = False
    search_batch: bool = False


def resolve(
    notebook: str,
    *,
    recipe: str = "auto",
    data: str | Path = "auto",
    devices: int | str = "auto",
    gpus: int | str | None = "auto",
    run: str | Path = "auto",
    seed: int = 0,
    precision: str = "fp32",
    workers: int | str = "default",
    batch: int | str = "default",
    warmup_epochs: float | str = 0,
) -> Setup:
    """Fill in every ``auto``, prepare the data if it is missing, and scale the recipe.

    ``recipe``: ``chexnet`` where there is a GPU, else ``demo``.
    ``data``: the NIH's images under ``data/nih-264`` where they are there and the recipe is
    ``chexnet``; else the generated set, made on first use.
    ``devices``: all GPUs, or two virtual CPU devices.
    ``gpus``: as many as devices; fewer are shared. With 0, which makes the devices virtual, this
    process and all it starts see no GPU any more.
    ``run``: ``runs/interactive/<notebook>-<n>x``, with ``-<g>gpu`` where they share ``g``.
    ``workers``: of the loader, for all devices together. ``default`` is up to 8 a device and no
    more than there are CPU cores to use; ``auto`` has the notebook measure.
    ``batch``: images per device, with the learning rate in proportion. ``default`` is the
    recipe's; ``auto`` has the notebook find the largest that fits.
    ``warmup_epochs``: over how many epochs the learning rate climbs, step by step, from one
    device's to that of all.
    """
    found = device_helpers.resolve(devices, gpus)
    if found.kind == "cpu" and device_helpers.visible():
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # else framework and monitor would find them
    if recipe == "auto":
        recipe = "chexnet" if found.kind == "gpu" else "demo"
    warmup = epochs_of_warmup(warmup_epochs)
    chosen = lookup(recipe, seed=seed, precision=precision, warmup_epochs=warmup)
    if batch not in ("auto", "default"):
        chosen = chosen.with_batch(_whole("batch", batch, least=1))
    folder = prepare_data(chosen, data)
    chosen = fit_to_images(chosen, folder)
    if run == "auto":
        name = device_helpers.run_name(notebook, found.count, found.shared_gpus)
        run = paths.RUNS / "interactive" / name
    measured = workers in ("auto", "default")
    return Setup(
        found,
        chosen.on(found.count),
        folder,
        Path(run).resolve(),
        default_workers(found) if measured else _whole("workers", workers, least=0),
        measure_workers=workers == "auto",
        search_batch=batch == "auto",
    )


def default_workers(devices: Devices) -> int:
    """Up to 8 loader workers a device, and no more than there are CPU cores to use."""
    return min(8 * devices.count, loader_workers.usable_cores())


def whole(value: int | str) -> int | None:
    """The whole number a user gave, as a number or as text; None if it is none, as ``true``."""
    text = str(value).strip()
    digits = text.removeprefix("-")
    if isinstance(value, bool) or not (digits.isascii() and digits.isdigit()):
        return None
    return int(text)


def epochs_of_warmup(value: float | str) -> float:
    """How long the learning rate climbs, as a user gave it.

    Raises:
        UserError: it is no number from 0.
    """
    try:
        epochs = float(value)
    except (TypeError, ValueError):
        epochs = math.nan
    if isinstance(value, bool) or not 0 <= epochs <= MOST_WARMUP:
        raise UserError(
            f"warmup_epochs is {value!r}: give a number of epochs from 0 to {MOST_WARMUP:.0f}, "
            "such as 0.5"
        )
    return epochs


def _whole(what: str, value: int | str, *, least: int) -> int:
    number = whole(value)
    if number is None or not least <= number < 2**31:
        raise UserError(f"{what} is {value!r}: give a whole number from {least}, or 'auto'")
    return number
