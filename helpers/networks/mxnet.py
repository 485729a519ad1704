"""The networks in MXNet Gluon: the DenseNet121 of its zoo, and ResNets built of its layers.

The zoo's DenseNet121 is torchvision's, but for its last pooling over 7 x 7 pixels: a global average
takes its place. Its resnet50_v1 is another network: 1x1 convolutions have biases, and the first of
them halves the image. Weights are mapped by their order, so layers stand in torchvision's.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.gluon import nn
from mxnet.gluon.model_zoo import vision

from helpers.networks import custom
from helpers.networks.shapes import EXPANSION, RESNET44, RESNET50, outputs_of
from helpers.recipe import Recipe

Model: TypeAlias = gluon.HybridBlock


def build(
    network: str, arrays: Mapping[str, np.ndarray], recipe: Recipe, outputs: int = 0
) -> Model:
    """It is yet to be initialised on its devices."""
    if network == "own":
        return _own(recipe, outputs)
    make = {"densenet121": _densenet121, "resnet44": _resnet44, "resnet50": _resnet50}
    model = (make | {"shallow": _shallow})[network](outputs_of(network, arrays))

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


def _shallow(outputs: int) -> Model:
    model = nn.HybridSequential()
    model.add(_convolution(64, 7, 2), nn.BatchNorm(), nn.Activation("relu"))
    model.add(nn.GlobalAvgPool2D(), nn.Dense(outputs))
    return model


def _resnet44(outputs: int) -> Model:
    model, channels = nn.HybridSequential(), next(iter(RESNET44))
    model.add(_convolution(channels, 3), nn.BatchNorm(), nn.Activation("relu"))
    for stage, (width, blocks) in enumerate(RESNET44.items()):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            branch = nn.HybridSequential()
            branch.add(_convolution(width, 3, stride), nn.BatchNorm(), nn.Activation("relu"))
            branch.add(_convolution(width, 3), nn.BatchNorm())
            model.add(Block(branch, Shortcut() if stride == 2 else None))
    model.add(nn.GlobalAvgPool2D(), nn.Dense(outputs))
    return model


def _resnet50(outputs: int) -> Model:
    model, channels = nn.HybridSequential(), next(iter(RESNET50))
    model.add(_convolution(channels, 7, 2), nn.BatchNorm(), nn.Activation("relu"))
    model.add(nn.MaxPool2D(3, 2, 1))
    for stage, (width, blocks) in enumerate(RESNET50.items()):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            branch, shortcut = nn.HybridSequential(), None
            branch.add(_convolution(width, 1), nn.BatchNorm(), nn.Activation("relu"))
            branch.add(_convolution(width, 3, stride), nn.BatchNorm(), nn.Activation("relu"))
            branch.add(_convolution(EXPANSION * width, 1), nn.BatchNorm())
            if block == 0:
                shortcut = nn.HybridSequential()
                shortcut.add(_convolution(EXPANSION * width, 1, stride), nn.BatchNorm())
            model.add(Block(branch, shortcut))
    model.add(nn.GlobalAvgPool2D(), nn.Dense(outputs))
    return model


class Block(gluon.HybridBlock):
    """A branch, added to what it was given, or to what its shortcut makes of that."""

    def __init__(self, branch: gluon.HybridBlock, shortcut: gluon.HybridBlock | None) -> None:
        super().__init__()
        self.branch, self.shortcut = branch, shortcut

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        given = x if self.shortcut is None else self.shortcut(x)
        return F.relu(self.branch(x) + given)


class Shortcut(gluon.HybridBlock):
    """Every second pixel, with zeros in the added channels."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        x = F.slice(x, begin=(None, None, None, None), end=(None,) * 4, step=(1, 1, 2, 2))
        return F.concat(x, F.zeros_like(x), dim=1)


def _convolution(channels: int, size: int, stride: int = 1) -> nn.Conv2D:
    return nn.Conv2D(channels, size, stride, size // 2, use_bias=False)
