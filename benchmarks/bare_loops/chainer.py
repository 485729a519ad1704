"""Train with plain Chainer: this project's DenseNet121, ``backward`` and Chainer's Adam."""

from collections.abc import Callable

import chainer
import chainer.functions as F
import numpy as np

from helpers.frameworks import chainer as framework
from helpers.networks import chainer as networks
from helpers.networks import weights
from helpers.recipe import RECIPES


def make(pixels: int, batch: int) -> Callable[[int], None]:
    arrays = weights.seeded()
    model = networks.build("densenet121", arrays, RECIPES["chexnet"])
    framework.load_weights(model, arrays)
    optimizer = chainer.optimizers.Adam(1e-4).setup(model)
    random = np.random.default_rng(0)
    images = random.standard_normal((batch, 3, pixels, pixels), dtype=np.float32)
    targets = np.zeros((batch, 14), np.int32)
    if chainer.backends.cuda.available:
        model.to_gpu()
        images, targets = map(chainer.backends.cuda.to_gpu, (images, targets))

    def take(steps: int) -> None:
        for _ in range(steps):
            model.cleargrads()
            loss = F.sigmoid_cross_entropy(model(images), targets)
            loss.backward()
            optimizer.update()
        if chainer.backends.cuda.available:
            chainer.backends.cuda.Stream.null.synchronize()

    return take
