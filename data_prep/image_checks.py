"""Check every image of a data folder: readable, unchanged since writing, and not a duplicate."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from data_prep.catalog import Catalog
from data_prep.errors import DataError
from data_prep.files import map_in_processes
from data_prep.image_decoding import note_levels
from data_prep.manifest import Row, sha256_of
from data_prep.prepared_folder import text_without_path
from data_prep.readers import catalog_reader as sources

BATCH = 32

#: An image to check: its name, its source, its pixels if they are in memory, and its SHA-256 from
#: the manifest, or "".
Job = tuple[str, str, np.ndarray | None, str]


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
    notes: tuple[str, ...] = ()
    """What reading it lost or changed; see `image_decoding.decode`."""


def check_images(
    found: Catalog,
    array: np.ndarray | None,
    rows: Mapping[str, Row],
    channels: int,
    num_workers: int | None,
    progress: bool,
) -> list[ImageCheck]:
    """Decode every image, or read its pixels in `array`; `rows` is the folder's manifest."""
    jobs: Iterator[Job] = (
        (
            image,
            source,
            None if array is None else np.asarray(array[at]),
            rows[image].sha256 if image in rows else "",
        )
        for at, (image, source) in enumerate(zip(found.images, found.sources, strict=True))
    )
    checks: list[ImageCheck] = []
    work = partial(_check, folder=os.fspath(found.folder), kind=found.kind, channels=channels)
    with tqdm(total=len(found), desc="verify", unit=" images", disable=not progress or None) as bar:
        for some in map_in_processes(work, jobs, BATCH, num_workers):
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
    groups: Iterable[list[str]],
    patients: Mapping[str, Hashable],
    labels: Mapping[str, object],
) -> dict[str, str]:
    """Return the images to exclude so that no image occurs under two patients, with reasons.

    The first image of a group is kept, and all other images of the same patient. Equal images with
    different labels are all kept: only a person can say which label is right.
    """
    return {
        image: f"the same image as {first} of patient {patients[first]}"
        for first, *others in groups
        if len({labels[image] for image in (first, *others)}) == 1
        for image in others
        if patients[image] != patients[first]
    }


def _check(job: Job, *, folder: str, kind: str, channels: int) -> ImageCheck:
    image, source, pixels, expected = job
    path = os.path.join(folder, source)  # noqa: PTH118 (speed)
    notes: list[str] = []
    try:
        if pixels is None:
            data = sources.read_source(folder, kind, source)
            pixels = sources.decode_source(data, kind, path, channels, notes)
        else:
            data = pixels.tobytes()
    except DataError as error:
        return ImageCheck(image, problem=text_without_path(error, path))
    same = hashlib.blake2b(pixels.tobytes(), digest_size=16).digest()
    changed = bool(expected) and sha256_of(data) != expected
    note_levels(pixels, notes)
    return ImageCheck(image, "", changed, same, pixels.shape, tuple(notes))
