"""Chainer's LabeledImageDataset behind a MultiprocessIterator: Pillow decodes, in Python.

Source: repository chainer/chainer, examples/imagenet/train_imagenet.py, class PreprocessedDataset
and its training iterator.

What had to change:

- The mean image, which that example computes before it trains, is of zeros: subtracting it costs
  the same. It has the size of the first image, and so each image is to have.
- `randint(0, side - crop - 1)` excludes the last place twice, and fails where there is one only.
- The loop of Chainer's updater makes arrays of a batch's examples; here `concat_examples` does,
  which it uses.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from chainer.dataset import DatasetMixin, concat_examples
from chainer.datasets import LabeledImageDataset, TransformDataset
from chainer.iterators import MultiprocessIterator
from chainercv import transforms

import data_prep
from stock_loaders import labelled


class Preprocessed(DatasetMixin):  # type: ignore[misc]
    """Crops, flipped half of the time, between 0 and 1."""

    def __init__(self, pairs: list[tuple[str, int]], crop: int) -> None:
        self.base = LabeledImageDataset(pairs)
        self.mean = np.zeros_like(self.base[0][0])
        self.crop = crop

    def __len__(self) -> int:
        return len(self.base)

    def get_example(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        image, label = self.base[number]
        _, height, width = image.shape
        top, left = random.randint(0, height - self.crop), random.randint(0, width - self.crop)
        if random.randint(0, 1):
            image = image[:, :, ::-1]
        bottom, right = top + self.crop, left + self.crop
        image = image[:, top:bottom, left:right]
        image -= self.mean[:, top:bottom, left:right]
        image *= 1.0 / 255.0
        return image, label


def labeled_images(folder: Path, workers: int, batch: int, crop: int) -> Iterator[Any]:
    """float32 (batch, 3, crop, crop) between 0 and 1, and classes (batch,)."""
    pairs = [(str(path), label) for path, label in labelled(folder)]
    yield from batches(Preprocessed(pairs, crop), workers, batch)


def own_crops(folder: Path, workers: int, batch: int, crop: int) -> Iterator[Any]:
    """uint8 (batch, 1, crop, crop), and classes (batch,)."""

    def load(pair: tuple[Path, int]) -> tuple[np.ndarray, int]:
        pixels = transforms.random_crop(data_prep.read_grey(pair[0])[None], (crop, crop))
        return transforms.random_flip(pixels, x_random=True), pair[1]

    yield from batches(TransformDataset(labelled(folder), load), workers, batch)


def batches(dataset: Any, workers: int, batch: int) -> Iterator[Any]:
    loader = MultiprocessIterator(dataset, batch, n_processes=workers)
    try:
        yield from map(concat_examples, loader)
    finally:
        loader.finalize()


EXAMPLES = {"Chainer's LabeledImageDataset example (decodes in Python)": labeled_images}
OWN = {"ChainerCV's random_crop, random_flip": own_crops}
