"""Gluon's transforms in a `Dataset`, which its `DataLoader` reads with worker threads.

Gluon 1.9 has no random crop of a fixed size: `RandomResizedCrop` of one scale is one.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon.data.vision import transforms

from own_transforms import BATCH, CROP, OUTPUTS, Images

OWN = "RandomResizedCrop, RandomFlipLeftRight"


class Crops(gluon.data.Dataset):  # type: ignore[misc]
    def __init__(self, images: Images, own: bool) -> None:
        self.images, self.own = images, own
        scale = (CROP / images.read(0).shape[0]) ** 2
        crop = transforms.RandomResizedCrop(CROP, (scale, scale), (1, 1))
        self.transform = transforms.Compose([crop, transforms.RandomFlipLeftRight()])

    def __getitem__(self, key: tuple[int, int]) -> Any:
        if not self.own:
            return mx.nd.array(self.images.ours(key), dtype="uint8")
        return self.transform(mx.nd.array(self.images.read(key[1]), dtype="uint8"))


def train(images: Images, workers: int, own: bool) -> Iterator[None]:
    keys = images.keys()
    batches = iter(lambda: list(islice(keys, BATCH)), [])
    loader = gluon.data.DataLoader(
        Crops(images, own), batch_sampler=batches, num_workers=workers, thread_pool=True
    )
    network = gluon.nn.HybridSequential()
    network.add(
        gluon.nn.Conv2D(8, 8, 8, activation="relu"),
        gluon.nn.GlobalAvgPool2D(),
        gluon.nn.Dense(OUTPUTS),
    )
    network.initialize()
    network.hybridize()
    trainer = gluon.Trainer(network.collect_params(), "sgd", {"learning_rate": 0.01})
    criterion = gluon.loss.SigmoidBinaryCrossEntropyLoss()
    targets = mx.nd.zeros((BATCH, OUTPUTS))
    for pixels in loader:
        with autograd.record():
            loss = criterion(
                network(pixels.transpose((0, 3, 1, 2)).astype("float32") / 255), targets
            )
        loss.backward()
        trainer.step(BATCH)
        loss.wait_to_read()
        yield
