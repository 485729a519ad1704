"""Computations in Chainer for the fairness check and the self-test.

One process holds all devices of ParallelUpdater, which **sums** their gradients instead of
averaging them, so every loss here is divided by the whole batch and not by the device's share.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer.backends import cuda

from helpers.frameworks.chainer_state import dtype_of, dump_weights, load_weights, trained
from helpers.networks import chainer as networks
from helpers.recipe import RECIPES

Device: TypeAlias = chainer.backend.Device
Model: TypeAlias = chainer.Chain


def exact(
    build_model: Callable[[Mapping[str, np.ndarray]], Model], weights: Mapping[str, np.ndarray]
) -> Model:
    with chainer.using_config("dtype", np.float64):
        return build_model(weights)


def shallow(weights: Mapping[str, np.ndarray], devices: Sequence[Device]) -> Model:
    with chainer.using_config("dtype", weights["classifier.bias"].dtype):
        model = networks.build("shallow", weights, RECIPES["chexnet"])
    load_weights(model, weights)
    return model


def logits(model: Model, images: np.ndarray) -> np.ndarray:
    with (
        chainer.using_config("train", False),
        chainer.no_backprop_mode(),
        chainer.using_device(model.device),
    ):
        batch = model.xp.asarray(images, dtype=dtype_of(model))
        return cuda.to_cpu(model(batch).array)


def train_forward(model: Model, images: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    other = model.copy(mode="copy")
    with chainer.no_backprop_mode(), chainer.using_device(model.device):  # training is the default
        found = other(model.xp.asarray(images, dtype=dtype_of(model)))
    return cuda.to_cpu(found.array), dump_weights(other)


def gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    """What ParallelUpdater hands to its optimiser: device ``i`` of ``n`` takes every n-th
    image from the i-th on, and the gradients are summed.
    """
    dtype = dtype_of(model)
    batch = list(zip(images.astype(dtype), targets.astype(np.int32), strict=True))
    replicas = [MeanLoss(model, targets.size)]
    replicas += [replicas[0].copy(mode="copy") for _ in devices[1:]]
    names = ["main", *(f"device {position}" for position in range(1, len(devices)))]
    for replica, device in zip(replicas, devices, strict=True):
        replica.to_device(device)
    optimizer = chainer.optimizers.SGD(lr=0).setup(replicas[0])  # a step of zero leaves the model
    updater = chainer.training.ParallelUpdater(
        chainer.iterators.SerialIterator(batch, len(batch), shuffle=False),
        optimizer,
        models=dict(zip(names, replicas, strict=True)),
        devices=dict(zip(names, devices, strict=True)),
    )
    with chainer.using_config("train", False):
        updater.update()
    total = sum(float(replica.loss.array) for replica in replicas)
    return total, {
        name: cuda.to_cpu(parameter.grad).copy()
        for name, parameter in trained(model)
        if parameter.grad is not None
    }


@contextmanager
def seen_by(model: Model) -> Iterator[list[np.ndarray]]:
    note = _Note()
    layer = next(link for link in model.links() if isinstance(link, L.Convolution2D))
    layer.add_hook(note)
    try:
        yield note.seen
    finally:
        layer.delete_hook(note.name)


class _Note(chainer.LinkHook):
    """Keeps what a layer is given."""

    name = "note"

    def __init__(self) -> None:
        self.seen: list[np.ndarray] = []

    def forward_preprocess(self, args: Any) -> None:
        given = args.args[0]
        self.seen.append(cuda.to_cpu(getattr(given, "array", given)))


class MeanLoss(chainer.Chain):
    """A model with its share of the mean over ``count`` labels, kept for the host to read."""

    def __init__(self, model: Model, count: int) -> None:
        super().__init__()
        self.count = count
        with self.init_scope():
            self.model = model

    def forward(self, images: Any, targets: Any) -> chainer.Variable:
        losses = F.sigmoid_cross_entropy(self.model(images), targets, reduce="no")
        self.loss = F.sum(losses) / self.count
        return self.loss
