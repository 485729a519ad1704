"""What the fairness check and the self-test let Chainer compute.

One process holds all devices of ParallelUpdater, which **sums** their gradients instead of
averaging them, so every loss here is divided by the whole batch and not by the device's share.
"""

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer.backends import cuda

from helpers.frameworks import replicas
from helpers.frameworks.chainer_state import dtype_of, dump_weights, load_weights, trained
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
        model = _Shallow()
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


def through_layer(
    layer: str, arrays: Mapping[str, np.ndarray], device: Device
) -> dict[str, np.ndarray]:
    with chainer.using_device(device):
        given = {name: chainer.Variable(device.send(array)) for name, array in arrays.items()}
        images = given["images"]
        if layer == "convolution":
            output = F.convolution_2d(images, given["weight"], pad=1)
        elif layer == "BatchNorm":
            epsilon = RECIPES["chexnet"].bn_epsilon
            output = F.batch_normalization(images, given["scale"], given["offset"], eps=epsilon)
        else:
            output = F.average_pooling_2d(F.max_pooling_2d(images, 3, 2, cover_all=False), 2)
        output.grad = given.pop("gradient").array
        output.backward()
        found = {"output": output.array, **{name: each.grad for name, each in given.items()}}
        return {name: cuda.to_cpu(array) for name, array in found.items()}


def all_reduced(shares: Sequence[np.ndarray], devices: Sequence[Device]) -> list[np.ndarray]:
    """ParallelUpdater between CPUs; between GPUs the updater that forks a process for each and uses
    NCCL, in a process where CUDA has not been started.
    """
    if devices[0].name == "@numpy":
        return _reduced(0, shares, devices)
    found: list[np.ndarray] = replicas.run(_reduced, 1, shares, devices)[0]
    return found


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


class _Sum(chainer.Chain):
    """A weight for each number of a share, whose gradient is that share.

    Before each step it notes in ``seen``, a row a device, what the weights are on its device.
    """

    def __init__(self, seen: np.ndarray) -> None:
        super().__init__()
        self.seen = seen
        with self.init_scope():
            self.weight = chainer.Parameter(np.zeros_like(seen[0]))

    def forward(self, number: int, share: Any) -> chainer.Variable:
        self.seen[number] = cuda.to_cpu(self.weight.array)
        return F.sum(self.weight * share)


def _reduced(
    rank: int, shares: Sequence[np.ndarray], devices: Sequence[Device]
) -> list[np.ndarray]:
    """What each device has after a step of SGD down the sum of ``shares``, with its sign turned.

    Seen when the next step begins, in whichever process, through memory that all of them share.
    """
    numbers = range(len(devices))
    memory = multiprocessing.RawArray("f", sum(map(len, shares)))
    seen = np.frombuffer(memory, np.float32).reshape(len(shares), -1)
    models = [_Sum(seen) for _ in devices]
    optimizer = chainer.optimizers.SGD().setup(models[0])

    def whole_rate(rule: Any) -> None:  # the updater for GPUs divides it by their number
        rule.lr = 1.0

    def sent(batch: Sequence[int], device: Device) -> tuple[int, Any]:
        (number,) = batch
        return number, device.send(shares[number])

    optimizer.add_hook(whole_rate)
    if devices[0].name == "@numpy":
        names = ["main", *(f"device {number}" for number in numbers[1:])]
        updater = chainer.training.ParallelUpdater(
            chainer.iterators.SerialIterator(numbers, len(numbers), shuffle=False),
            optimizer,
            converter=sent,
            models=dict(zip(names, models, strict=True)),
            devices=dict(zip(names, devices, strict=True)),
        )
    else:
        updater = chainer.training.updaters.MultiprocessParallelUpdater(
            [chainer.iterators.SerialIterator([number], 1, shuffle=False) for number in numbers],
            optimizer,
            converter=sent,
            devices=devices,
        )
        updater.setup_workers()  # forks, which must come before CUDA starts in this process
        replicas.end_with(updater._workers)  # NCCL would wait for a dead one for ever
    for _ in range(2):
        updater.update()
    updater.finalize()
    return [-row for row in seen]


class _Shallow(chainer.Chain):
    def __init__(self) -> None:
        super().__init__()
        recipe = RECIPES["chexnet"]
        features = chainer.Chain()
        with features.init_scope():
            features.conv0 = L.Convolution2D(3, 64, 7, stride=2, pad=3, nobias=True)
            features.norm0 = L.BatchNormalization(
                64, eps=recipe.bn_epsilon, decay=1 - recipe.bn_momentum
            )
        with self.init_scope():
            self.features, self.classifier = features, L.Linear(64, 14)

    def forward(self, images: Any) -> chainer.Variable:
        x = self.features.norm0(self.features.conv0(images))
        return self.classifier(F.mean(F.relu(x), axis=(2, 3)))


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
