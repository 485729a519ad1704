"""Each framework's own crops and flips in its stock loader, for `benchmarks/transforms.py`.

The module of a framework has `OWN`, the names of what crops and flips, and a function

    train(images, workers, own)

which trains a network of one convolution and yields after each step, without end. With `own`, the
framework crops and flips; else :func:`ours` does, as in the notebooks. All else is the same.
"""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np

import data_prep

CROP, BATCH, OUTPUTS, SEED = 224, 32, 14, 0


class Images:
    """Grey images, uint8 (H, W, 1), and targets of zeros."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.glob("*.png"))

    def __len__(self) -> int:
        return len(self.files)

    def read(self, i: int) -> np.ndarray:
        return data_prep.read_grey(self.files[i])[:, :, None]

    def ours(self, key: tuple[int, int]) -> np.ndarray:
        """Image i of an epoch as every notebook trains it, whichever worker reads it."""
        epoch, i = key
        return np.ascontiguousarray(augment(self.read(i), np.random.default_rng([SEED, epoch, i])))

    def keys(self) -> Iterator[tuple[int, int]]:
        """Epoch after epoch, without end."""
        for epoch in count():
            order = np.random.default_rng([SEED, epoch]).permutation(len(self))
            yield from ((epoch, int(i)) for i in order)


def augment(pixels: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """A random crop of an image (H, W, C), flipped left to right half of the time."""
    top, left = (random.integers(side - CROP + 1) for side in pixels.shape[:2])
    pixels = pixels[top : top + CROP, left : left + CROP]
    return pixels[:, ::-1] if random.random() < 0.5 else pixels
