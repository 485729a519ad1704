"""Read CIFAR-10 as published (Krizhevsky 2009), the binary version or the Python version.

The Python version consists of pickles, and none is executed (see `safe_unpickle`). Either version
is read from the .tar.gz or unpacked, in the folder itself or in the archive's folder. An image is
32 x 32 pixels in three planes, red, green and blue, row by row.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data_prep.archive import iterate_members
from data_prep.catalog import Catalog
from data_prep.errors import DataError
from data_prep.files import read_limited
from data_prep.manifest import file_state
from data_prep.readers import safe_unpickle
from data_prep.readers.path_safety import is_utf8, refuse_outside

IMAGE_BYTES = 3 * 32 * 32
#: A published batch has 30.7 MB.
MAX_BYTES = 256 << 20

META_FILES = {"batches.meta.txt": ".bin", "batches.meta": ""}
"""The files with the names of the classes, each with the extension of its batch files."""
FOLDERS = ("", "cifar-10-batches-bin", "cifar-10-batches-py")
ARCHIVES = ("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz")
BATCH = re.compile(r"(data_batch_[0-9]{1,3}|test_batch)(\.bin)?")


class Batch(NamedTuple):
    """The images of one file."""

    labels: np.ndarray
    """int64 (images,)"""
    data: bytes
    """The planes of each image; in the binary version one byte precedes each image."""
    step: int
    """Number of bytes from one image to the next."""


def catalog(folder: Path) -> Catalog:
    """List the images of a CIFAR-10 folder or archive: 5 files of train and one file of test."""
    home, names, ending = _files(folder)
    classes = _classes(home, names)
    images: list[str] = []
    sources: list[str] = []
    labels: list[np.ndarray] = []
    parts: list[int] = []
    for name in names[1:]:
        batch = _batch(home / name)
        bare = re.split("[!/]", name)[-1].removesuffix(ending)
        if batch.labels.min() < 0 or batch.labels.max() >= len(classes):
            bad = int(np.flatnonzero((batch.labels < 0) | (batch.labels >= len(classes)))[0])
            raise DataError(
                f"{home / name}: image {bad} has class {batch.labels[bad]},"
                f" expected 0 to {len(classes) - 1}; download the file again"
            )
        start = batch.step - IMAGE_BYTES
        images += [f"{bare}/{at:05d}.png" for at in range(len(batch.labels))]
        sources += [
            f"{name}@{at * batch.step + start}+{IMAGE_BYTES}" for at in range(len(batch.labels))
        ]
        labels.append(batch.labels)
        parts += [2 if bare == "test_batch" else 0] * len(batch.labels)
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
    batches = [_batch(catalog.folder / name) for name in names]
    found = np.empty((len(catalog), 32, 32, 3), dtype=np.uint8)
    at = 0
    for batch in batches:
        rows = np.frombuffer(batch.data, dtype=np.uint8).reshape(-1, batch.step)[:, -IMAGE_BYTES:]
        found[at : at + len(rows)] = images_of_planes(rows)
        at += len(rows)
    return found


def images_of_planes(data: bytes | np.ndarray) -> np.ndarray:
    """Convert bytes in planes to images, uint8 (images, 32, 32, 3)."""
    flat = np.frombuffer(data, dtype=np.uint8) if isinstance(data, bytes) else data
    return flat.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def batch_bytes(path: Path) -> bytes:
    """Return the bytes of a file; the offsets of a catalogue's sources refer to these bytes."""
    return _batch(path).data


def clear_cache() -> None:
    """Drop the cached files, so that they take no memory besides the pixels."""
    _load.cache_clear()
    _unpack.cache_clear()


def _files(folder: Path) -> tuple[Path, list[str], str]:
    """Return the folder, the names of meta and batch files, and the batches' extension."""
    candidates: list[tuple[Path, str, list[str]]] = []
    if folder.is_file():
        candidates.append((folder.parent, f"{folder.name}!", sorted(_unpacked(folder))))
    else:
        for inner in FOLDERS:
            if (folder / inner).is_dir():
                names = sorted(os.listdir(folder / inner))  # noqa: PTH208
                candidates.append((folder, f"{inner}/" if inner else "", names))
        for name in ARCHIVES:
            if (folder / name).is_file():
                candidates.append((folder, f"{name}!", sorted(_unpacked(folder / name))))
    for home, before, names in candidates:
        for meta, ending in META_FILES.items():
            known = [name for name in names if BATCH.fullmatch(name)]
            batches = [name for name in known if name.endswith(".bin") == (ending == ".bin")]
            if meta in names and batches:
                if "test_batch" + ending not in batches or len(batches) < 2:
                    raise DataError(f"{folder}: data_batch_1{ending} or test_batch{ending} missing")
                return home, [before + name for name in (meta, *batches)], ending
    raise DataError(
        f"{folder}: not CIFAR-10; expected data_batch_1.bin and batches.meta.txt, or data_batch_1"
        f" and batches.meta, or {' or '.join(ARCHIVES)}"
    )


def _classes(home: Path, names: list[str]) -> tuple[str, ...]:
    path = home / names[0]
    data = _bytes(path)
    found: Any
    if names[0].endswith(".txt"):
        found = [line.strip() for line in data.decode("utf-8", "replace").splitlines()]
        found = [line for line in found if line]
    else:
        found = safe_unpickle.load_dictionary(data, str(path)).get("label_names")
    texts = isinstance(found, list) and all(isinstance(n, str) and n for n in found)
    if not texts or not is_utf8("".join(found)):
        raise DataError(f"{path}: no list of class names; download the file again")
    if not found or len(found) > 256 or len(set(found)) < len(found):
        raise DataError(f"{path}: {len(found)} classes, or two of one name; download it again")
    return tuple(found)


def _batch(path: Path) -> Batch:
    """Read one file; the result is cached while the file is unchanged."""
    real = path.parent / path.name.partition("!")[0]
    try:
        return _load(path, file_state(real))
    except OSError as error:
        raise DataError(f"{real}: cannot be read ({error.strerror})") from None


@lru_cache(maxsize=16)
def _load(path: Path, state: str) -> Batch:
    data = _bytes(path)
    if path.name.endswith(".bin"):
        if not data or len(data) % (IMAGE_BYTES + 1):
            raise DataError(
                f"{path}: {len(data):,} bytes, not a multiple of {IMAGE_BYTES + 1};"
                " download the file again"
            )
        rows = np.frombuffer(data, dtype=np.uint8).reshape(-1, IMAGE_BYTES + 1)
        return Batch(rows[:, 0].astype(np.int64), data, IMAGE_BYTES + 1)
    content = safe_unpickle.load_dictionary(data, str(path))
    labels: Any
    array, labels = content.get("data"), content.get("labels")
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.shape[1] != IMAGE_BYTES:
        raise DataError(
            f"{path}: 'data' is not a uint8 array (images, {IMAGE_BYTES}); download it again"
        )
    numbers = isinstance(labels, list) and all(type(label) is int for label in labels)
    if not numbers or not len(array) or len(labels) != len(array):
        raise DataError(
            f"{path}: 'labels' does not have a whole number for each image; download it again"
        )
    if not all(0 <= label < 256 for label in labels):
        raise DataError(f"{path}: a label beyond 0 to 255; download it again")
    return Batch(np.array(labels, dtype=np.int64), array.tobytes(), IMAGE_BYTES)


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
        iterate_members(archive, lambda name: name in META_FILES or bool(BATCH.fullmatch(name)))
    )
