"""The networks in MXNet Gluon: the DenseNet121 of its zoo, and ResNets built of its layers.

The zoo's DenseNet121 is torchvision's, but for its last pooling over 7 x 7 pixels: a global average
takes its place. Its resnet50_v1 is another network: 1x1 convolutions have biases, and the first of
them halves the image. Weights are mapped by their order, so layers stand in torchvision's.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, TypeAlias

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.gluon import nn
from mxnet.gluon.model_zoo import vision

from helpers.networks import custom
from helpers.networks.composed import Layers, compose
from helpers.networks.shapes import outputs_of
from helpers.recipe import Recipe

Model: TypeAlias = gluon.HybridBlock


def build(
    network: str, arrays: Mapping[str, np.ndarray], recipe: Recipe, outputs: int = 0
) -> Model:
    """It is yet to be initialised on its devices."""
    if network == "own":
        return _own(recipe, outputs)
    if network == "densenet121":
        model = _densenet121(outputs_of(network, arrays))
    else:
        model = _in_turn(compose(network, LAYERS)[0])
        model.add(nn.GlobalAvgPool2D(), nn.Dense(outputs_of(network, arrays)))

    def as_in_recipe(layer: Any) -> None:
        if isinstance(layer, nn.BatchNorm):
            layer._kwargs.update(eps=recipe.bn_epsilon, momentum=1 - recipe.bn_momentum)

    model.apply(as_in_recipe)
    return model


def _own(recipe: Recipe, outputs: int) -> Model:
    images = mx.nd.zeros((custom.IMAGES, recipe.channels, recipe.crop, recipe.crop))

    def shape(model: Model) -> tuple[int, ...]:
        for parameter in model.collect_params().values():
            if parameter._data is None and not parameter._deferred_init:  # not by its maker
                parameter.initialize()
        logits: tuple[int, ...] = model(images).shape  # sizes that were left open are known now
        return logits

    mx.random.seed(recipe.seed)
    model: Model = custom.make("mxnet", recipe, outputs, gluon.Block, shape)
    return model


def _densenet121(outputs: int) -> Model:
    model = vision.densenet121(classes=outputs)
    features = model.features[:-2]  # all but AvgPool2D(7) and Flatten
    features.add(nn.GlobalAvgPool2D(), nn.Flatten())
    model.features = features
    return model


def _in_turn(layers: Mapping[str, Any]) -> gluon.HybridBlock:
    found = nn.HybridSequential()
    found.add(*(each if isinstance(each, gluon.Block) else each() for each in layers.values()))
    return found


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
    norm=lambda channels: nn.BatchNorm(),
    relu=partial(nn.Activation, "relu"),
    pool=partial(nn.MaxPool2D, 3, 2, 1),
    halve=partial(nn.AvgPool2D, 2),
    in_turn=_in_turn,
    dense=_in_turn,  # DenseNet121 is the zoo's
    block=Block,
    zeros=Shortcut,
)
