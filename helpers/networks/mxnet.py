"""The networks in MXNet Gluon, composed of its layers; DenseNet121 is as in its zoo.

The zoo's resnet50_v1 is another network: 1x1 convolutions have biases, and the first of them halves
the image. Weights are mapped by their order, so layers stand in torchvision's.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, TypeAlias

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.gluon import nn

from helpers.networks import custom
from helpers.networks.shapes import Layers, compose, outputs_of
from helpers.recipe import Recipe

Model: TypeAlias = gluon.HybridBlock


def build(network: str, arrays: Mapping[str, np.ndarray], recipe: Recipe) -> Model:
    """It is yet to be initialised on its devices."""
    norm = {"epsilon": recipe.bn_epsilon, "momentum": 1 - recipe.bn_momentum}
    model = _in_turn(compose(network, LAYERS._replace(norm=lambda _: nn.BatchNorm(**norm)))[0])
    model.add(nn.GlobalAvgPool2D(), nn.Dense(outputs_of(network, arrays)))
    return model


def own(recipe: Recipe, outputs: int) -> Model:
    images = mx.nd.zeros((custom.IMAGES, recipe.channels, recipe.crop, recipe.crop))

    def shape(model: Model) -> tuple[int, ...]:
        for parameter in model.collect_params().values():
            if parameter._data is None and not parameter._deferred_init:  # not by its maker
                parameter.initialize()
        return model(images).shape  # sizes that were left open are known now

    mx.random.seed(recipe.seed)
    return custom.make("mxnet", recipe, outputs, gluon.Block, shape)


def _in_turn(layers: Mapping[str, Any], kind: type = nn.HybridSequential) -> gluon.HybridBlock:
    found = kind()
    found.add(*(each if isinstance(each, gluon.Block) else each() for each in layers.values()))
    return found


class DenseLayer(nn.HybridSequential):
    """New channels from all channels before, appended to them."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.concat(x, super().hybrid_forward(F, x), dim=1)


class Block(gluon.HybridBlock):
    """A branch, added to what it was given, or to what its shortcut makes of that."""

    def __init__(self, branch: Mapping[str, Any], shortcut: Any) -> None:
        super().__init__()
        self.branch = _in_turn(branch)
        self.shortcut = shortcut() if shortcut is Shortcut else shortcut

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        given = x if self.shortcut is None else self.shortcut(x)
        return F.relu(self.branch(x) + given)


class Shortcut(gluon.HybridBlock):
    """Every second pixel, with zeros in the added channels."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        x = F.slice(x, begin=(None, None, None, None), end=(None,) * 4, step=(1, 1, 2, 2))
        return F.concat(x, F.zeros_like(x), dim=1)


def _convolution(into: int, channels: int, size: int, stride: int = 1) -> nn.Conv2D:
    return nn.Conv2D(channels, size, stride, size // 2, use_bias=False)


LAYERS = Layers(
    convolution=_convolution,
    norm=nn.BatchNorm,
    relu=partial(nn.Activation, "relu"),
    pool=partial(nn.MaxPool2D, 3, 2, 1),
    halve=partial(nn.AvgPool2D, 2),
    in_turn=_in_turn,
    dense=partial(_in_turn, kind=DenseLayer),
    block=Block,
    zeros=Shortcut,
)
