"""Names and shapes of each network's weights, in torchvision's order: convolutions are OIHW.

``densenet121`` (Huang et al. 2017, https://arxiv.org/abs/1608.06993) and ``resnet50`` are
torchvision's. ``resnet44`` is the one for CIFAR (He et al. 2015, https://arxiv.org/abs/1512.03385,
section 4.2, n = 7), with their shortcuts without parameters: every second pixel, and zeros in the
new channels. Its names follow those of resnet50.
"""

from collections.abc import Mapping

import numpy as np

Shapes = dict[str, tuple[int, ...]]

NETWORKS = ("densenet121", "resnet44", "resnet50")

GROWTH = 32
BLOCKS = (6, 12, 24, 16)
"""DenseNet121: new channels of each layer, and layers of each block."""

RESNET44 = {16: 7, 32: 7, 64: 7}
RESNET50 = {64: 3, 128: 4, 256: 6, 512: 3}
"""Channels of each stage's 3x3 convolutions, and its blocks."""

EXPANSION = 4
"""A block of ResNet50 ends in so many times the channels of its 3x3 convolution."""

RUNNING = ("running_mean", "running_var")

SHALLOW = "shallow"
"""The network that training loops are tested on: a DenseNet's beginning and end, with no block."""


def shapes(network: str = "densenet121", outputs: int = 14) -> Shapes:
    """Name and shape of every array of a network in ``NETWORKS``, or of ``SHALLOW``."""
    make = {"densenet121": _densenet121, "resnet44": _resnet44, "resnet50": _resnet50}
    backbone, channels = (make | {SHALLOW: _shallow})[network]()
    name = head(network)
    return backbone | {f"{name}.weight": (outputs, channels), f"{name}.bias": (outputs,)}


def head(network: str) -> str:
    """Torchvision's name of the last layer."""
    return "fc" if network.startswith("resnet") else "classifier"


def outputs_of(network: str, arrays: Mapping[str, np.ndarray]) -> int:
    """The number of outputs that these weights are for."""
    return len(arrays[f"{head(network)}.bias"])


def names_by_count(count: int) -> list[str]:
    """The names of the only known net that has so many arrays; ValueError without one."""
    for names in map(shapes, (SHALLOW, *NETWORKS)):
        if len(names) == count:
            return list(names)
    raise ValueError(f"a model of {count} arrays is none of {', '.join(NETWORKS)}")


def _convolution(name: str, out: int, into: int, size: int) -> Shapes:
    return {f"{name}.weight": (out, into, size, size)}


def _norm(name: str, channels: int) -> Shapes:
    return {f"{name}.{part}": (channels,) for part in ("weight", "bias", *RUNNING)}


def _shallow() -> tuple[Shapes, int]:
    """All but the head, and the channels that it is given."""
    channels = 2 * GROWTH
    found = _convolution("features.conv0", channels, 3, 7) | _norm("features.norm0", channels)
    return found, channels


def _densenet121() -> tuple[Shapes, int]:
    found, channels = _shallow()
    for block, layers in enumerate(BLOCKS, start=1):
        for layer in range(1, layers + 1):
            name = f"features.denseblock{block}.denselayer{layer}"
            found |= _norm(f"{name}.norm1", channels)
            found |= _convolution(f"{name}.conv1", 4 * GROWTH, channels, 1)
            found |= _norm(f"{name}.norm2", 4 * GROWTH)
            found |= _convolution(f"{name}.conv2", GROWTH, 4 * GROWTH, 3)
            channels += GROWTH
        if block < len(BLOCKS):
            name = f"features.transition{block}"
            found |= _norm(f"{name}.norm", channels)
            found |= _convolution(f"{name}.conv", channels // 2, channels, 1)
            channels //= 2
    return found | _norm("features.norm5", channels), channels


def _resnet44() -> tuple[Shapes, int]:
    channels = next(iter(RESNET44))
    found = _convolution("conv1", channels, 3, 3) | _norm("bn1", channels)
    for stage, (width, blocks) in enumerate(RESNET44.items(), start=1):
        for block in range(blocks):
            name = f"layer{stage}.{block}"
            found |= _convolution(f"{name}.conv1", width, channels, 3) | _norm(f"{name}.bn1", width)
            found |= _convolution(f"{name}.conv2", width, width, 3) | _norm(f"{name}.bn2", width)
            channels = width
    return found, channels


def _resnet50() -> tuple[Shapes, int]:
    channels = next(iter(RESNET50))
    found = _convolution("conv1", channels, 3, 7) | _norm("bn1", channels)
    for stage, (width, blocks) in enumerate(RESNET50.items(), start=1):
        for block in range(blocks):
            name, out = f"layer{stage}.{block}", EXPANSION * width
            found |= _convolution(f"{name}.conv1", width, channels, 1) | _norm(f"{name}.bn1", width)
            found |= _convolution(f"{name}.conv2", width, width, 3) | _norm(f"{name}.bn2", width)
            found |= _convolution(f"{name}.conv3", out, width, 1) | _norm(f"{name}.bn3", out)
            if block == 0:
                found |= _convolution(f"{name}.downsample.0", out, channels, 1)
                found |= _norm(f"{name}.downsample.1", out)
            channels = out
    return found, channels
