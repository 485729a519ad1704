"""Read CIFAR-10 as published (Krizhevsky 2009), in its binary version.

It is read from the .tar.gz or unpacked, in the folder itself or in the archive's folder. After one
byte with its class, an image has 32 x 32 pixels in three planes, red, green and blue, row by row.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path

import numpy as np

from data_prep.archive import iterate_members
from data_prep.catalog import Catalog
from data_prep.errors import DataError
from data_prep.files import read_limited
from data_prep.manifest import file_state
from data_prep.readers.path_safety import refuse_outside

IMAGE_BYTES = 3 * 32 * 32
STEP = IMAGE_BYTES + 1
#: A published batch has 30.7 MB.
MAX_BYTES = 256 << 20

META_FILE = "batches.meta.txt"
FOLDER = "cifar-10-batches-bin"
ARCHIVE = "cifar-10-binary.tar.gz"
BATCH = re.compile(r"(data_batch_[0-9]{1,3}|test_batch)\.bin")


def catalog(folder: Path) -> Catalog:
    """List the images of a CIFAR-10 folder or archive: 5 files of train and one file of test."""
    home, before, names = _files(folder)
    classes = _classes(home / f"{before}{META_FILE}")
    images: list[str] = []
    sources: list[str] = []
    labels: list[np.ndarray] = []
    parts: list[int] = []
    for name in names:
        path = home / f"{before}{name}"
        here = _records(path)[:, 0].astype(np.int64)
        if here.max() >= len(classes):
            bad = int((here >= len(classes)).argmax())
            raise DataError(
                f"{path}: image {bad} has class {here[bad]}, expected 0 to {len(classes) - 1};"
                " download the file again"
            )
        bare = name.removesuffix(".bin")
        images += [f"{bare}/{at:05d}.png" for at in range(len(here))]
        sources += [f"{before}{name}@{at * STEP + 1}+{IMAGE_BYTES}" for at in range(len(here))]
        labels.append(here)
        parts += [2 if bare == "test_batch" else 0] * len(here)
    return Catalog(
        home,
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


def batch_bytes(path: Path) -> bytes:
    """Return the bytes of a file; the result is cached while the file is unchanged."""
    real = path.parent / path.name.partition("!")[0]
    try:
        return _load(path, file_state(real))
    except OSError as error:
        raise DataError(f"{real}: cannot be read ({error.strerror})") from None


def clear_cache() -> None:
    """Drop the cached files, so that they take no memory besides the pixels."""
    _load.cache_clear()
    _unpack.cache_clear()


def _files(folder: Path) -> tuple[Path, str, list[str]]:
    """Return the folder, the text before the name of a file, and the names of the batches."""
    candidates: list[tuple[Path, str, list[str]]] = []
    if folder.is_file():
        candidates.append((folder.parent, f"{folder.name}!", sorted(_unpacked(folder))))
    else:
        for inner in ("", FOLDER):
            if (folder / inner).is_dir():
                names = sorted(os.listdir(folder / inner))  # noqa: PTH208
                candidates.append((folder, f"{inner}/" if inner else "", names))
        if (folder / ARCHIVE).is_file():
            candidates.append((folder, f"{ARCHIVE}!", sorted(_unpacked(folder / ARCHIVE))))
    for home, before, names in candidates:
        batches = [name for name in names if BATCH.fullmatch(name)]
        if META_FILE in names and batches:
            if "test_batch.bin" not in batches or len(batches) < 2:
                raise DataError(f"{folder}: data_batch_1.bin or test_batch.bin missing")
            return home, before, batches
    raise DataError(
        f"{folder}: not CIFAR-10's binary version; expected data_batch_1.bin and {META_FILE}, or"
        f" {ARCHIVE}"
    )


def _classes(path: Path) -> tuple[str, ...]:
    lines = _bytes(path).decode("utf-8", "replace").splitlines()
    found = [line.strip() for line in lines if line.strip()]
    if not found or len(found) > 256 or len(set(found)) < len(found):
        raise DataError(f"{path}: {len(found)} classes, or two of one name; download it again")
    return tuple(found)


def _records(path: Path) -> np.ndarray:
    """Return uint8 (images, 3073): the class and the planes of each image."""
    return np.frombuffer(batch_bytes(path), dtype=np.uint8).reshape(-1, STEP)


@lru_cache(maxsize=16)
def _load(path: Path, state: str) -> bytes:
    data = _bytes(path)
    if not data or len(data) % STEP:
        raise DataError(
            f"{path}: {len(data):,} bytes, not a multiple of {STEP}; download the file again"
        )
    return data


def _bytes(path: Path) -> bytes:
    archive, inside, name = path.name.partition("!")
    if inside:
        return _unpacked(path.parent / archive)[name]
    refuse_outside(path.parent, path.name)
    try:
        return read_limited(path, MAX_BYTES)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None


def _unpacked(archive: Path) -> dict[str, bytes]:
    return _unpack(archive, file_state(archive))


@lru_cache(maxsize=1)
def _unpack(archive: Path, state: str) -> dict[str, bytes]:
    """Return the relevant files of an archive by bare name, in memory (184 MB)."""
    return dict(
        iterate_members(archive, lambda name: name == META_FILE or bool(BATCH.fullmatch(name)))
    )
