"""Generated photos of ImageNet's sizes, as its JPEGs and as a recipe's, and bare decoding.

Most of ImageNet's photos have 500 x 375 pixels or as many upright; its archive of 147.9 GB for
1,281,167 of them makes 115 kB a photo. What is generated shows nothing, only clouds of every size
over each other; but a decoder has as much to do with them as with photos of as many bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

WIDTH, HEIGHT = 500, 375
RESIZED, CROP = 256, 224
"""As `recipes/resnet50-imagenet.toml` has them."""


class Files(NamedTuple):
    """Where which files are."""

    name: str
    data: str
    """The data folder."""
    train: str
    """Its training images, in a folder a class."""
    shorter: int
    """Pixels of an image's shorter side."""
    mode: str = "rgb"


SMALL = Files(f"JPEGs of {RESIZED} px", "resized", "resized/images/train", RESIZED)
LARGE = Files(f"JPEGs of {WIDTH} x {HEIGHT}", "photos", "photos/train", HEIGHT)

BARE = "bare decoding"

AHEAD = 2
"""Batches a thread may decode ahead."""


def photo(seed: int) -> np.ndarray:
    """Clouds of colour, uint8 (375, 500, 3)."""
    draws = np.random.default_rng(seed)
    found = np.zeros((HEIGHT, WIDTH, 3), np.float32)
    for cells in 2 ** np.arange(1, 10):
        # More in grey than in colour, as in photos.
        grey, colour = draws.normal(size=(1, cells, cells)), draws.normal(size=(3, cells, cells))
        for plane, layer in enumerate((grey + 0.4 * colour).astype(np.float32)):
            cloud = Image.fromarray(layer).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
            found[..., plane] += 30 / cells**0.1 * np.asarray(cloud)
    return np.clip(found + 120, 0, 255).astype(np.uint8)


def make_photos(folder: Path, images: int) -> None:
    """So many photos to train on, and a few more; then as the recipe has them, by `data_prep`."""
    import data_prep

    classes = min(images, 10)
    for part, numbers in {"train": range(images), "val": range(images, images + classes)}.items():
        for number in numbers:
            file = folder / "photos" / part / f"class{number % classes}" / f"{number}.JPEG"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(photo(number)).save(file, quality=90)
    data_prep.resize_folder(
        folder / "photos",
        folder / "resized",
        size=RESIZED,
        format="jpeg",
        reader="imagefolder",
        channels=3,
        resize_mode="center-crop",
        progress=False,
    )


def images_in(folder: Path) -> list[Path]:
    """The files of a folder with a folder a class."""
    return sorted(folder.glob("*/*"))


def decoded(
    read: Callable[[Any], Any], images: Sequence[Any], workers: int, batch: int
) -> Iterator[int]:
    """``read`` of one image after another by itself, without end: pixels are dropped.

    Our readers give Python's lock back while they decode, so it is done in so many threads. Each
    item is the number of images of a batch.
    """
    order = cycle(images)

    def decode(some: list[Any]) -> int:
        for image in some:
            read(image)
        return len(some)

    threads = max(1, workers)
    with ThreadPoolExecutor(threads) as pool:
        coming = [pool.submit(decode, list(islice(order, batch))) for _ in range(AHEAD * threads)]
        try:
            while True:
                yield coming.pop(0).result()
                coming.append(pool.submit(decode, list(islice(order, batch))))
        finally:
            pool.shutdown(cancel_futures=True)
