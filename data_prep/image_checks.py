"""Check every image of a data folder: readable, unchanged since writing, and not a duplicate."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from data_prep.errors import DataError
from data_prep.files import in_batches, map_in_processes
from data_prep.manifest import sha256_of
from data_prep.prepared_folder import text_without_path
from data_prep.readers import catalog_reader as sources

BATCH = 32

#: An image to check: its name, its source, its place in a packed file, and its SHA-256 from the
#: manifest, or "".
Job = tuple[str, str, int, str]


class ImageCheck(NamedTuple):
    """The result of the check of one image."""

    image: str
    problem: str = ""
    """The reason why the image cannot be read, or empty."""
    changed: bool = False
    """True if the file differs from the SHA-256 in the manifest."""
    pixels: bytes = b""
    """A hash of the pixels."""
    shape: tuple[int, ...] = ()


def check_images(
    jobs: Sequence[Job],
    packed: Path | None,
    num_workers: int | None,
    progress: bool,
    *,
    folder: str = "",
    kind: str = "file",
    channels: int = 1,
) -> list[ImageCheck]:
    """Decode every image, or read its place in the array file `packed`.

    `folder` and `kind` locate the sources, as a catalogue's `folder` and `kind`.
    """
    checks: list[ImageCheck] = []
    work = partial(_check_batch, packed=packed, folder=folder, kind=kind, channels=channels)
    with tqdm(total=len(jobs), desc="verify", unit=" images", disable=not progress) as bar:
        for some in map_in_processes(work, in_batches(jobs, BATCH), num_workers):
            checks += some
            bar.update(len(some))
    return checks


def find_duplicates(checks: Iterable[ImageCheck]) -> list[list[str]]:
    """Return the groups of images with equal pixels, sorted by name."""
    same: dict[bytes, list[str]] = defaultdict(list)
    for look in checks:
        if look.pixels:
            same[look.pixels].append(look.image)
    return sorted(sorted(images) for images in same.values() if len(images) > 1)


def duplicates_to_exclude(
    groups: Iterable[list[str]], patients: Mapping[str, Hashable]
) -> dict[str, str]:
    """Return the images to exclude so that no image occurs under two patients, with reasons.

    The first image of a group is kept, and all other images of the same patient.
    """
    return {
        image: f"the same image as {first} of patient {patients[first]}"
        for first, *others in groups
        for image in others
        if patients[image] != patients[first]
    }


def _check_batch(
    jobs: Sequence[Job], *, packed: Path | None, folder: str, kind: str, channels: int
) -> list[ImageCheck]:
    array = None if packed is None else np.load(packed, mmap_mode="r", allow_pickle=False)
    checks = []
    for image, source, place, expected in jobs:
        path = os.path.join(folder, source)  # noqa: PTH118 (speed)
        try:
            if array is None:
                data = sources.read_source(folder, kind, source)
                changed = bool(expected) and sha256_of(data) != expected
                pixels = sources.decode_source(data, kind, path, channels)
            else:
                pixels = array[place]
                changed = bool(expected) and sha256_of(pixels.tobytes()) != expected
        except DataError as error:
            checks.append(ImageCheck(image, problem=text_without_path(error, path)))
        else:
            same = hashlib.blake2b(pixels.tobytes(), digest_size=16).digest()
            checks.append(ImageCheck(image, "", changed, same, pixels.shape))
    return checks
