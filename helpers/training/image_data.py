"""The images of a run: which folder, made where it is missing; checked, read and split."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

import data_prep
from data_prep import demo
from helpers import paths, terminal
from helpers.errors import UserError
from helpers.recipe import Recipe, ScaledRecipe
from helpers.training import run_identity

if TYPE_CHECKING:  # it reads what is said here
    from helpers.training.parameters import Setup

LARGEST = 264
"""Above this many pixels images are to be resized first; the recipe's own size is the limit."""

GENERATED = f"demo-{demo.VERSION}"
"""Folder of the generated images; each version's its own, for an older one's are others."""


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
    def classes(self) -> tuple[str, ...]:
        """Names of the findings, in the order of the network's outputs."""
        return data_prep.FINDINGS

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
        found = run_identity.images(images)
        if self.packed is None:
            sizes = [Path(path).stat().st_size for path in images["path"]]
        else:
            sizes = list(self.packed.shape)
        found.update(str(sizes).encode())
        return str(found.hexdigest())


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
        print(f"Data ready after {terminal.clock(time.perf_counter() - started)}", flush=True)
    return target


def data_folder(recipe: Recipe, data: str | Path = "auto") -> Path:
    """The folder :func:`prepare_data` gives, whether its images are there yet or not."""
    if data != "auto":
        return _given_folder(data)
    nih = paths.DATA / f"nih-{recipe.resized}"
    if recipe.name != "demo" and data_prep.is_complete(nih):
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


def load_data(setup: "Setup") -> Data:
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


def _is_generated(folder: Path) -> bool:
    """Whether data_prep made the set: ``demo`` leaves a ``demo.json``, which ``resize`` copies."""
    return (folder / "demo.json").exists()
