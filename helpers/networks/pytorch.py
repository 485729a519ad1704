"""The networks in PyTorch: torchvision's, and ResNet44 built of its blocks."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models import densenet121, resnet50
from torchvision.models.resnet import BasicBlock

from helpers.networks import custom
from helpers.networks.shapes import STAGES, outputs_of
from helpers.recipe import Recipe

Model: TypeAlias = nn.Module


def build(network: str, arrays: Mapping[str, np.ndarray], recipe: Recipe) -> Model:
    make = {"densenet121": densenet121, "resnet44": ResNet44, "resnet50": resnet50}
    model = (make | {"shallow": _shallow})[network](num_classes=outputs_of(network, arrays))
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.eps, layer.momentum = recipe.bn_epsilon, recipe.bn_momentum
    return model


def own(recipe: Recipe, outputs: int) -> Model:
    images = torch.zeros(custom.IMAGES, recipe.channels, recipe.crop, recipe.crop)

    def shape(model: Model) -> torch.Size:
        with torch.no_grad():  # which also makes what is lazy
            return model.eval()(images).shape

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        return custom.make("pytorch", recipe, outputs, nn.Module, shape).train()


def _shallow(num_classes: int) -> Model:
    convolution = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
    features = nn.Sequential(OrderedDict(conv0=convolution, norm0=nn.BatchNorm2d(64)))
    pooled = {"relu": nn.ReLU(), "pool": nn.AdaptiveAvgPool2d(1), "flat": nn.Flatten()}
    last = nn.Linear(64, num_classes)
    return nn.Sequential(OrderedDict(features=features, **pooled, classifier=last))


class ResNet44(nn.Module):
    """He's for CIFAR; torchvision has those for ImageNet only."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        channels = next(iter(STAGES["resnet44"]))
        self.conv1 = nn.Conv2d(3, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        for stage, (width, blocks) in enumerate(STAGES["resnet44"].items(), start=1):
            layers = [_block(channels, width), *(_block(width, width) for _ in range(1, blocks))]
            self.add_module(f"layer{stage}", nn.Sequential(*layers))
            channels = width
        self.fc = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean(dim=(2, 3)))


class Shortcut(nn.Module):
    """Every second pixel, with zeros in the added channels."""

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, x.shape[1]))


def _block(channels: int, width: int) -> BasicBlock:
    if width == channels:
        return BasicBlock(channels, width)
    return BasicBlock(channels, width, stride=2, downsample=Shortcut())
