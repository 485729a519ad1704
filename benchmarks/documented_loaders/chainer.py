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
from chainer.datasets import LabeledImageDataset
from chainer.iterators import MultiprocessIterator, SerialIterator

from documented_loaders import labelled


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


def labeled_images(folder: Path, workers: int, batch: int, crop: int) -> Iterator[tuple[Any, Any]]:
    """float32 (batch, 3, crop, crop) between 0 and 1, and classes (batch,)."""
    dataset = Preprocessed([(str(path), label) for path, label in labelled(folder)], crop)
    if workers:
        loader = MultiprocessIterator(dataset, batch, n_processes=workers)
    else:
        loader = SerialIterator(dataset, batch)
    try:
        for examples in loader:
            yield concat_examples(examples)
    finally:
        loader.finalize()


EXAMPLES = {"Chainer's LabeledImageDataset example (decodes in Python)": labeled_images}
