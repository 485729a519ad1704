"""ChainerCV's transforms in a `TransformDataset`, which a `MultiprocessIterator` reads."""

from collections.abc import Iterator
from itertools import islice

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer.datasets import TransformDataset
from chainer.iterators import MultiprocessIterator
from chainercv import transforms

from own_transforms import BATCH, CROP, OUTPUTS, Images

OWN = "random_crop, random_flip"
EPOCHS = 1000
"""The iterator asks for a length."""


def train(images: Images, workers: int, own: bool) -> Iterator[None]:
    def crop(key: tuple[int, int]) -> np.ndarray:
        if not own:
            return images.ours(key).transpose(2, 0, 1)
        pixels = images.read(key[1]).transpose(2, 0, 1)
        return transforms.random_flip(transforms.random_crop(pixels, (CROP, CROP)), x_random=True)

    keys = list(islice(images.keys(), EPOCHS * len(images)))
    loader = MultiprocessIterator(
        TransformDataset(keys, crop), BATCH, shuffle=False, n_processes=workers
    )
    network = chainer.Sequential(
        L.Convolution2D(1, 8, 8, 8), F.relu, lambda x: F.mean(x, (2, 3)), L.Linear(8, OUTPUTS)
    )
    optimizer = chainer.optimizers.SGD(0.01).setup(network)
    targets = np.zeros((BATCH, OUTPUTS), np.int32)
    try:
        for batch in loader:
            pixels = np.stack(batch).astype(np.float32) / 255
            loss = F.sigmoid_cross_entropy(network(pixels), targets)
            network.cleargrads()
            loss.backward()
            optimizer.update()
            yield
    finally:
        loader.finalize()
