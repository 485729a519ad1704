"""The networks in Chainer, written out because Chainer's own zoo differs from torchvision.

``chainer.links.ResNet50Layers`` is Caffe's: a stage's first block halves the image in its first
1x1 convolution, not in the 3x3. Links are named as torchvision's. Three of Chainer's defaults would
make other networks: BatchNorm's epsilon (2e-5), its decay, and pooling that rounds the size up
(``cover_all``).
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, TypeAlias

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np

from helpers.networks import custom
from helpers.networks.shapes import Layers, compose, head, outputs_of
from helpers.recipe import Recipe

Model: TypeAlias = chainer.Chain


def build(network: str, arrays: Mapping[str, np.ndarray], recipe: Recipe) -> Model:
    norm = partial(L.BatchNormalization, eps=recipe.bn_epsilon, decay=1 - recipe.bn_momentum)
    layers, channels = compose(network, LAYERS._replace(norm=norm))
    last = L.Linear(channels, outputs_of(network, arrays))
    return InTurn(layers | {"mean": partial(F.mean, axis=(2, 3)), head(network): last})


def own(recipe: Recipe, outputs: int) -> Model:
    pixels = custom.IMAGES, recipe.channels, recipe.crop, recipe.crop
    images = np.zeros(pixels, chainer.config.dtype)

    def shape(model: Model) -> tuple[int, ...]:
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            return model(images).shape  # sizes that were left open are known now

    return custom.make("chainer", recipe, outputs, chainer.Chain, shape)


def convolution(channels: int, out: int, size: int, stride: int = 1) -> L.Convolution2D:
    """Padded so that the image keeps its size, or half of it; no bias."""
    return L.Convolution2D(channels, out, size, stride, pad=size // 2, nobias=True)


class InTurn(chainer.Chain):
    """Links and functions by name, one after another."""

    def __init__(self, steps: Mapping[str, Any]) -> None:
        super().__init__()
        self.steps = list(steps)
        with self.init_scope():
            for name, step in steps.items():
                setattr(self, name, step)

    def forward(self, x: Any) -> chainer.Variable:
        for name in self.steps:
            x = getattr(self, name)(x)
        return x


class DenseLayer(InTurn):
    """New channels from all channels before, appended to them."""

    def forward(self, x: Any) -> chainer.Variable:
        return F.concat((x, super().forward(x)))


class Block(InTurn):
    """A branch added to what it was given, or to its shortcut."""

    def __init__(self, branch: Mapping[str, Any], downsample: Any) -> None:
        super().__init__(branch)
        with self.init_scope():
            self.downsample = downsample

    def forward(self, x: Any) -> chainer.Variable:
        short = x if self.downsample is None else self.downsample(x)
        return F.relu(super().forward(x) + short)


def shortcut(x: Any) -> chainer.Variable:
    """Every second pixel, with zeros in the added channels."""
    x = x[:, :, ::2, ::2]
    return F.concat((x, x.xp.zeros_like(x.array)))


LAYERS = Layers(
    convolution=convolution,
    norm=L.BatchNormalization,
    relu=F.relu,
    pool=partial(F.max_pooling_2d, ksize=3, stride=2, pad=1, cover_all=False),
    halve=partial(F.average_pooling_2d, ksize=2),
    in_turn=InTurn,
    dense=DenseLayer,
    block=Block,
    zeros=shortcut,
)
