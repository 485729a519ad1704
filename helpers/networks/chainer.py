"""The networks in Chainer, written out because Chainer's own zoo differs from torchvision.

``chainer.links.ResNet50Layers`` is Caffe's: a stage's first block halves the image in its first
1x1 convolution, not in the 3x3. Links are named as torchvision's. Three of Chainer's defaults would
make other networks: BatchNorm's epsilon (2e-5), its decay, and pooling that rounds the size up
(``cover_all``).
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np

from helpers.networks import custom
from helpers.networks.shapes import BLOCKS, EXPANSION, GROWTH, RESNET44, RESNET50, outputs_of
from helpers.recipe import Recipe

Model: TypeAlias = chainer.Chain
Norm: TypeAlias = Callable[[int], L.BatchNormalization]


def build(
    network: str, arrays: Mapping[str, np.ndarray], recipe: Recipe, outputs: int = 0
) -> Model:
    if network == "own":
        return _own(recipe, outputs)
    norm = partial(L.BatchNormalization, eps=recipe.bn_epsilon, decay=1 - recipe.bn_momentum)
    make = {"densenet121": _densenet121, "resnet44": _resnet44, "resnet50": _resnet50}
    return (make | {"shallow": _shallow})[network](outputs_of(network, arrays), norm)


def _own(recipe: Recipe, outputs: int) -> Model:
    pixels = custom.IMAGES, recipe.channels, recipe.crop, recipe.crop
    images = np.zeros(pixels, chainer.config.dtype)

    def shape(model: Model) -> tuple[int, ...]:
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            logits: tuple[int, ...] = model(images).shape  # sizes that were left open are known now
        return logits

    model: Model = custom.make("chainer", recipe, outputs, chainer.Chain, shape)
    return model


def convolution(channels: int, out: int, size: int, stride: int = 1) -> L.Convolution2D:
    """Padded so that the image keeps its size, or half of it; no bias."""
    return L.Convolution2D(channels, out, size, stride, pad=size // 2, nobias=True)


POOL = partial(F.max_pooling_2d, ksize=3, stride=2, pad=1, cover_all=False)


class InTurn(chainer.Chain):
    """Links and functions by name, one after another."""

    def __init__(self, **steps: Any) -> None:
        super().__init__()
        self.steps = list(steps)
        with self.init_scope():
            for name, step in steps.items():
                setattr(self, name, step)

    def forward(self, x: Any) -> chainer.Variable:
        for name in self.steps:
            x = getattr(self, name)(x)
        return x


class DenseLayer(chainer.Chain):
    """New channels from all channels before, appended to them."""

    def __init__(self, channels: int, norm: Norm) -> None:
        super().__init__()
        between = 4 * GROWTH
        with self.init_scope():
            self.norm1, self.conv1 = norm(channels), convolution(channels, between, 1)
            self.norm2, self.conv2 = norm(between), convolution(between, GROWTH, 3)

    def forward(self, x: Any) -> chainer.Variable:
        new = self.conv1(F.relu(self.norm1(x)))
        return F.concat((x, self.conv2(F.relu(self.norm2(new)))))


class Transition(chainer.Chain):
    """Half the channels, half the size."""

    def __init__(self, channels: int, norm: Norm) -> None:
        super().__init__()
        with self.init_scope():
            self.norm, self.conv = norm(channels), convolution(channels, channels // 2, 1)

    def forward(self, x: Any) -> chainer.Variable:
        return F.average_pooling_2d(self.conv(F.relu(self.norm(x))), 2)


class DenseNet(chainer.Chain):
    """``features`` and a classifier."""

    def __init__(self, steps: Mapping[str, Any], channels: int, outputs: int) -> None:
        super().__init__()
        with self.init_scope():
            self.features, self.classifier = InTurn(**steps), L.Linear(channels, outputs)

    def forward(self, x: Any) -> chainer.Variable:
        return self.classifier(F.mean(F.relu(self.features(x)), axis=(2, 3)))


def _shallow(outputs: int, norm: Norm) -> Model:
    return DenseNet({"conv0": convolution(3, 64, 7, stride=2), "norm0": norm(64)}, 64, outputs)


def _densenet121(outputs: int, norm: Norm) -> Model:
    channels = 2 * GROWTH
    steps = {"conv0": convolution(3, channels, 7, stride=2), "norm0": norm(channels)}
    steps |= {"relu0": F.relu, "pool0": POOL}
    for number, layers in enumerate(BLOCKS, start=1):
        names = [f"denselayer{layer + 1}" for layer in range(layers)]
        block = {n: DenseLayer(channels + GROWTH * i, norm) for i, n in enumerate(names)}
        steps[f"denseblock{number}"] = InTurn(**block)
        channels += GROWTH * layers
        if number < len(BLOCKS):
            steps[f"transition{number}"] = Transition(channels, norm)
            channels //= 2
    return DenseNet(steps | {"norm5": norm(channels)}, channels, outputs)


class ResNet(InTurn):
    """A beginning and stages, and a last layer ``fc``."""

    def __init__(self, steps: Mapping[str, Any], channels: int, outputs: int) -> None:
        super().__init__(**steps)
        with self.init_scope():
            self.fc = L.Linear(channels, outputs)

    def forward(self, x: Any) -> chainer.Variable:
        return self.fc(F.mean(super().forward(x), axis=(2, 3)))


class Block(chainer.Chain):
    """Convolutions with BatchNorm, added to what they were given, or to its shortcut."""

    def __init__(self, branch: Mapping[str, Any], downsample: Any = None) -> None:
        super().__init__()
        self.steps = list(branch)
        with self.init_scope():
            for name, step in branch.items():
                setattr(self, name, step)
            self.downsample = downsample

    def forward(self, x: Any) -> chainer.Variable:
        y = x
        for name in self.steps:
            y = getattr(self, name)(y)
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


def shortcut(x: Any) -> chainer.Variable:
    """Every second pixel, with zeros in the added channels."""
    x = x[:, :, ::2, ::2]
    return F.concat((x, x.xp.zeros_like(x.array)))


def _resnet44(outputs: int, norm: Norm) -> Model:
    channels = next(iter(RESNET44))
    steps = {"conv1": convolution(3, channels, 3), "bn1": norm(channels), "relu": F.relu}
    for stage, (width, blocks) in enumerate(RESNET44.items(), start=1):
        made = {}
        for block in range(blocks):
            halves = stage > 1 and block == 0
            first = convolution(channels, width, 3, stride=2 if halves else 1)
            branch = {"conv1": first, "bn1": norm(width), "relu": F.relu}
            branch |= {"conv2": convolution(width, width, 3), "bn2": norm(width)}
            made[str(block)] = Block(branch, shortcut if halves else None)
            channels = width
        steps[f"layer{stage}"] = InTurn(**made)
    return ResNet(steps, channels, outputs)


def _resnet50(outputs: int, norm: Norm) -> Model:
    channels = next(iter(RESNET50))
    steps = {"conv1": convolution(3, channels, 7, stride=2), "bn1": norm(channels)}
    steps |= {"relu": F.relu, "maxpool": POOL}
    for stage, (width, blocks) in enumerate(RESNET50.items(), start=1):
        made = {}
        for block in range(blocks):
            stride, out = 2 if stage > 1 and block == 0 else 1, EXPANSION * width
            branch = {"conv1": convolution(channels, width, 1), "bn1": norm(width)}
            branch |= {"relu1": F.relu, "conv2": convolution(width, width, 3, stride)}
            branch |= {"bn2": norm(width), "relu2": F.relu}
            branch |= {"conv3": convolution(width, out, 1), "bn3": norm(out)}
            down = {"0": convolution(channels, out, 1, stride), "1": norm(out)}
            made[str(block)] = Block(branch, InTurn(**down) if block == 0 else None)
            channels = out
        steps[f"layer{stage}"] = InTurn(**made)
    return ResNet(steps, channels, outputs)
