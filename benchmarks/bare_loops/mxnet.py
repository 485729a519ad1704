"""Train with plain Gluon: the model zoo's hybridised DenseNet121, and Trainer with Adam."""

from collections.abc import Callable

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon.model_zoo.vision import densenet121


def make(pixels: int, batch: int) -> Callable[[int], None]:
    device = mx.gpu() if mx.context.num_gpus() else mx.cpu()
    mx.random.seed(0)
    model = densenet121(classes=14)
    features = model.features[:-2]  # its own average is over 7 x 7 pixels
    features.add(gluon.nn.GlobalAvgPool2D(), gluon.nn.Flatten())
    model.features = features
    model.initialize(mx.init.MSRAPrelu(), ctx=device)
    model.hybridize()
    criterion = gluon.loss.SigmoidBinaryCrossEntropyLoss()
    trainer = gluon.Trainer(model.collect_params(), "adam", {"learning_rate": 1e-4})
    images = mx.nd.random.normal(shape=(batch, 3, pixels, pixels), ctx=device)
    targets = mx.nd.zeros((batch, 14), device)

    def take(steps: int) -> None:
        for _ in range(steps):
            with autograd.record():
                loss = criterion(model(images), targets)
            loss.backward()
            trainer.step(batch)
        mx.nd.waitall()

    return take
