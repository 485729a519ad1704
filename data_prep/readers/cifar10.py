"""Read CIFAR-10 as published (Krizhevsky 2009), in its binary version, unpacked.

The files are in the folder itself or in the archive's folder. After one byte with its class, an
image has 32 x 32 pixels in three planes, red, green and blue, row by row.
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


def catalog(folder: Path) -> Catalog:
    """List the images of a CIFAR-10 folder: 5 files of train and one file of test."""
    home = next((at for at in (folder, folder / FOLDER) if (at / META_FILE).is_file()), folder)
    names = sorted(file.name for file in home.glob("*.bin") if BATCH.fullmatch(file.name))
    if not (home / META_FILE).is_file() or "test_batch.bin" not in names or len(names) < 2:
        raise DataError(
            f"{folder}: not CIFAR-10's binary version; unpack cifar-10-binary.tar.gz, which has"
            f" data_batch_1.bin, test_batch.bin and {META_FILE}"
        )
    classes = tuple(_read(home / META_FILE).decode("utf-8", "replace").split())
    if not classes or len(classes) > 256 or len(set(classes)) < len(classes):
        raise DataError(
            f"{home / META_FILE}: {len(classes)} classes, or two of one name; download it again"
        )
    inside = home.relative_to(folder)
    images: list[str] = []
    sources: list[str] = []
    labels: list[np.ndarray] = []
    parts: list[int] = []
    for name in names:
        here = _records(home / name)[:, 0].astype(np.int64)
        if here.max() >= len(classes):
            bad = int((here >= len(classes)).argmax())
            raise DataError(
                f"{home / name}: image {bad} has class {here[bad]}, expected 0 to"
                f" {len(classes) - 1}; download the file again"
            )
        bare = name.removesuffix(".bin")
        images += [f"{bare}/{at:05d}.png" for at in range(len(here))]
        sources += [f"{inside / name}@{at * STEP + 1}+{IMAGE_BYTES}" for at in range(len(here))]
        labels.append(here)
        parts += [2 if bare == "test_batch" else 0] * len(here)
    return Catalog(
        folder,
        images,
        sources,
        classes,
        np.concatenate(labels),
        parts=np.array(parts, dtype=np.int8),
        kind="record",
    )


def read_all_images(catalog: Catalog) -> np.ndarray:
    """Read all images of a catalogue into memory, uint8 (images, 32, 32, 3)."""
    names = dict.fromkeys(source.rpartition("@")[0] for source in catalog.sources)
    return np.concatenate(
        [images_of_planes(_records(catalog.folder / name)[:, 1:]) for name in names]
    )


def images_of_planes(data: bytes | np.ndarray) -> np.ndarray:
    """Convert bytes in planes to images, uint8 (images, 32, 32, 3)."""
    flat = np.frombuffer(data, dtype=np.uint8) if isinstance(data, bytes) else data
    return flat.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def _records(path: Path) -> np.ndarray:
    """Return uint8 (images, 3073): the class and the planes of each image."""
    data = _read(path)
    if not data or len(data) % STEP:
        raise DataError(
            f"{path}: {len(data):,} bytes, not a multiple of {STEP}; download the file again"
        )
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, STEP)


def _read(path: Path) -> bytes:
    try:
        return read_limited(path, MAX_BYTES)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
