"""From the notebook's parameters cell, where most things say ``auto``, to what a run uses."""

import math
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import data_prep
from data_prep import demo
from helpers import devices as device_helpers
from helpers import identity, loading, paths
from helpers.devices import Devices
from helpers.errors import UserError
from helpers.recipe import Recipe, ScaledRecipe, lookup

LARGEST = 264
"""Above this many pixels images are to be resized first; the recipe's own size is the limit."""

MOST_WARMUP = 1e9
"""Epochs; what a batch's journal can say."""

GENERATED = f"demo-{demo.VERSION}"
"""Folder of the generated images; each version's its own, for an older one's are others."""


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


@dataclass(frozen=True)
class Data:
    """The three parts of the images: each a table with ``path``, ``row`` and 14 label columns.

    ``packed`` holds the pixels of a folder that ``data-prep pack`` made, uint8 (images, pixels,
    pixels) in a memory map, where ``row`` is an image's place; None where images are files.
    """

    train: pd.DataFrame
    valid: pd.DataFrame
    test: pd.DataFrame
    folder: Path
    pixels: int
    kind: str  # "generated" or "real"
    packed: np.ndarray | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Sent to another process, a memory map would be a copy of all images.
        return self.__dict__ | {"packed": None, "is_packed": self.packed is not None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state.pop("is_packed"):
            state["packed"] = data_prep.open_packed(state["folder"])[0]
        self.__dict__.update(state)

    @property
    def format(self) -> str:
        """``png``, ``jpg`` or ``packed``."""
        if self.packed is not None:
            return "packed"
        return Path(self.train["path"].iloc[0]).suffix.lstrip(".")

    def as_record(self, recipe: ScaledRecipe) -> dict[str, Any]:
        """The record's section ``data``."""
        parts = {"train": self.train, "valid": self.valid, "test": self.test}
        return {
            "folder": str(self.folder),
            "kind": self.kind,
            "pixels": self.pixels,
            "format": self.format,
            "images": {name: len(part) for name, part in parts.items()},
            "patients": {name: part["patient"].nunique() for name, part in parts.items()},
            "steps_per_epoch": recipe.steps(len(self.train)),
            "sha256": self.sha256,
        }

    @property
    def sha256(self) -> str:
        """Digest over names, patients, labels and sizes of all images, however they are split."""
        images = pd.concat([self.train, self.valid, self.test]).sort_values("image")
        found = identity.images(images)
        if self.packed is None:
            sizes = [Path(path).stat().st_size for path in images["path"]]
        else:
            sizes = list(self.packed.shape)
        found.update(str(sizes).encode())
        return str(found.hexdigest())


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
    return min(8 * devices.count, loading.usable_cores())


def prepare_data(recipe: Recipe, data: str | Path = "auto") -> Path:
    """The folder with the images to train on; the generated set is made where it is missing."""
    target = data_folder(recipe, data)
    if data == "auto" and not data_prep.is_complete(target):
        source = paths.DATA / GENERATED
        started = time.perf_counter()
        print(f"Generating X-ray-like images in {source}, once", flush=True)
        data_prep.make_demo(source)
        print(f"Resizing them to {recipe.resized} px in {target}, once", flush=True)
        data_prep.resize_folder(source, target, size=recipe.resized)
        print(f"Data ready after {time.perf_counter() - started:.0f} s", flush=True)
    return target


def data_folder(recipe: Recipe, data: str | Path = "auto") -> Path:
    """The folder :func:`prepare_data` gives, whether its images are there yet or not."""
    if data != "auto":
        return _given_folder(data)
    nih = paths.DATA / f"nih-{recipe.resized}"
    if recipe.name == "chexnet" and data_prep.is_complete(nih):
        return nih
    return _in_utf8(paths.DATA / f"{GENERATED}-{recipe.resized}")


def fit_to_images(recipe: Recipe, folder: Path) -> Recipe:
    """The recipe with its crop suited to the size of the images in ``folder``."""
    pixels = image_size(folder)
    if pixels > LARGEST:
        raise UserError(
            f"{folder}: images of {pixels} px; resize them first: "
            f"data-prep resize {folder} TARGET --size {recipe.resized}"
        )
    return recipe.for_images(pixels)


def image_size(folder: Path) -> int:
    """Pixels along the shorter side of the folder's first image."""
    catalog, packed = _open(folder)
    if packed is not None:
        return int(packed.shape[1])
    return min(data_prep.read_grey(catalog["path"].iloc[0]).shape)


def load_data(setup: Setup) -> Data:
    """The folder's checked catalogue, split by patient 70/10/20 with the recipe's seed."""
    catalog, packed = _open(setup.data)
    catalog = catalog.assign(row=np.arange(len(catalog)))
    parts = data_prep.split_by_patient(catalog, seed=setup.recipe.recipe.seed)
    return Data(
        **parts,
        folder=setup.data,
        pixels=setup.recipe.recipe.resized,
        kind="generated" if _is_generated(setup.data) else "real",
        packed=packed,
    )


def check_images(folder: Path) -> None:
    """Decode every image of a folder that data_prep has not prepared, so no run stumbles later.

    Raises:
        DataError: naming the first file that cannot be read.
    """
    if data_prep.is_complete(folder) or data_prep.is_packed(folder):  # all were decoded then
        return
    catalog, _ = _open(folder)
    with ThreadPoolExecutor() as pool:
        for _ in pool.map(data_prep.read_grey, catalog["path"]):
            pass


def labels(part: pd.DataFrame) -> np.ndarray:
    """(N, 14) float32 targets of a part, in the order of ``data_prep.FINDINGS``."""
    return data_prep.labels(part).astype(np.float32)


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


def _given_folder(data: str | Path) -> Path:
    """A folder somebody named: from the current folder, or from the checkout's top."""
    for folder in (Path(data), paths.ROOT / data):
        if folder.is_dir():
            return _in_utf8(folder.resolve())
    raise UserError(f"data folder '{data}' does not exist: name one with a label file and images/")


def _in_utf8(folder: Path) -> Path:
    """``folder``; neither tables nor records can hold another name."""
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise UserError(
            f"{folder}: its name is not UTF-8 (or the locale is not: LC_ALL=C.UTF-8); rename it"
        ) from None
    return folder


def _open(folder: Path) -> tuple[pd.DataFrame, np.ndarray | None]:
    """The folder's checked catalogue, and its pixels where it is packed; read once."""
    return _read(folder, _changed(folder))


@lru_cache(maxsize=1)
def _read(folder: Path, changed: int) -> tuple[pd.DataFrame, np.ndarray | None]:
    if data_prep.is_packed(folder):
        packed, catalog = data_prep.open_packed(folder)
        return catalog, packed
    return data_prep.read_catalog(folder), None


def _changed(folder: Path) -> int:
    """When images last came or went, or labels changed, so that nothing old is taken for new."""
    places = [folder, *folder.glob("*")]
    return max((place.stat().st_mtime_ns for place in places if place.exists()), default=0)


def _whole(what: str, value: int | str, *, least: int) -> int:
    number = whole(value)
    if number is None or not least <= number < 2**31:
        raise UserError(f"{what} is {value!r}: give a whole number from {least}, or 'auto'")
    return number


def _is_generated(folder: Path) -> bool:
    """Whether data_prep made the set: ``demo`` leaves a ``demo.json``, which ``resize`` copies."""
    return (folder / "demo.json").exists()
