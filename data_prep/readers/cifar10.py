"""Read CIFAR-10 as published (Krizhevsky 2009), in its binary version, unpacked.

After one byte with its class, an image has 32 x 32 pixels in planes of red, green and blue.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from data_prep.catalog import Catalog
from data_prep.errors import DataError
from data_prep.files import read_limited

IMAGE_BYTES = 3 * 32 * 32
STEP = IMAGE_BYTES + 1
#: A published batch has 30.7 MB.
MAX_BYTES = 256 << 20

META_FILE = "batches.meta.txt"
FOLDER = "cifar-10-batches-bin"
BATCH = re.compile(r"(data_batch_[0-9]{1,3}|test_batch)\.bin")

#: An image as a source in a catalogue.
LOCATION = re.compile(r"(.+\.bin)@([0-9]{1,15})", re.DOTALL)


def catalog(folder: Path) -> Catalog:
    """List the images of a CIFAR-10 folder: 5 files of train and one file of test."""
    home = next((at for at in (folder, folder / FOLDER) if (at / META_FILE).is_file()), folder)
    names = sorted(file.name for file in home.glob("*.bin") if BATCH.fullmatch(file.name))
    if not (home / META_FILE).is_file() or "test_batch.bin" not in names or len(names) < 2:
        raise DataError(f"{folder}: not CIFAR-10; unpack cifar-10-binary.tar.gz, and name that")
    classes = tuple(_read(home / META_FILE).decode("utf-8", "replace").split())
    if not classes or len(classes) > 256 or len(set(classes)) < len(classes):
        raise DataError(f"{home / META_FILE}: no classes, or two of one name; download it again")
    inside = home.relative_to(folder)
    images: list[str] = []
    sources: list[str] = []
    labels: list[np.ndarray] = []
    splits: list[int] = []
    for name in names:
        here = _records(home / name)[:, 0].astype(np.int64)
        if here.max() >= len(classes):
            bad = int((here >= len(classes)).argmax())
            raise DataError(f"{home / name}: image {bad} has class {here[bad]}; download it again")
        bare = name.removesuffix(".bin")
        images += [f"{bare}/{at:05d}.png" for at in range(len(here))]
        sources += [f"{inside / name}@{at * STEP + 1}" for at in range(len(here))]
        labels.append(here)
        splits += [2 if bare == "test_batch" else 0] * len(here)
    return Catalog(
        folder,
        images,
        sources,
        classes,
        np.concatenate(labels),
        splits=np.array(splits, dtype=np.int8),
    )


def read_all_images(catalog: Catalog) -> np.ndarray:
    """Read all images of a catalogue into memory, uint8 (images, 32, 32, 3)."""
    names = dict.fromkeys(source.rpartition("@")[0] for source in catalog.sources)
    planes = np.concatenate([_records(catalog.folder / name)[:, 1:] for name in names])
    return planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def read_as_ppm(path: Path, offset: int) -> bytes:
    """Read the image at an offset of a file, as a PPM file."""
    with path.open("rb") as file:
        file.seek(offset)
        planes = np.frombuffer(file.read(IMAGE_BYTES), dtype=np.uint8)
    return b"P6 32 32 255\n" + planes.reshape(3, -1).T.tobytes()


def _records(path: Path) -> np.ndarray:
    """Return uint8 (images, 3073): the class and the planes of each image."""
    data = _read(path)
    if not data or len(data) % STEP:
        raise DataError(f"{path}: {len(data):,} bytes, not a multiple of {STEP}; download it again")
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, STEP)


def _read(path: Path) -> bytes:
    try:
        return read_limited(path, MAX_BYTES)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
