"""Names and shapes of each network's weights, in torchvision's order: convolutions are OIHW.

``densenet121`` (Huang et al. 2017, https://arxiv.org/abs/1608.06993) and ``resnet50`` are
torchvision's. ``resnet44`` is the one for CIFAR (He et al. 2015, https://arxiv.org/abs/1512.03385,
section 4.2, n = 7), with their shortcuts without parameters: every second pixel, and zeros in the
new channels. Its names follow those of resnet50.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

Shapes = dict[str, tuple[int, ...]]

NETWORKS = ("densenet121", "resnet44", "resnet50")

GROWTH = 32
BLOCKS = (6, 12, 24, 16)
"""DenseNet121: new channels of each layer, and layers of each block."""

STAGES = {
    "resnet44": {16: 7, 32: 7, 64: 7},
    "resnet50": {64: 3, 128: 4, 256: 6, 512: 3},
}
"""For each ResNet, the channels of each stage's 3x3 convolutions, and its blocks."""


class Block(NamedTuple):
    """A block of a ResNet: a branch, added to what it is given or to a shortcut of that."""

    stage: str
    """``layer1``."""
    place: str
    """In its stage, from ``0`` on."""
    channels: int
    """That it is given."""
    branch: tuple[tuple[int, int, int], ...]
    """Channels, size and stride of each convolution, which BatchNorm follows."""
    stride: int
    shortcut: str
    """``convolution`` (1x1 with BatchNorm), ``zeros`` (every second pixel, and zeros in as many new
    channels), or nothing."""

    @property
    def name(self) -> str:
        return f"{self.stage}.{self.place}"


RUNNING = ("running_mean", "running_var")

SHALLOW = "shallow"
"""The network that training loops are tested on: a DenseNet's beginning and end, with no block."""


def shapes(network: str = "densenet121", outputs: int = 14) -> Shapes:
    """Name and shape of every array of a network in ``NETWORKS``, or of ``SHALLOW``."""
    others = {"densenet121": _densenet121, SHALLOW: _shallow}
    backbone, channels = _resnet(network) if network in STAGES else others[network]()
    name = head(network)
    return backbone | {f"{name}.weight": (outputs, channels), f"{name}.bias": (outputs,)}


def stem(network: str) -> tuple[int, int, int]:
    """Channels, size and stride of a ResNet's first convolution; ResNet50 pools after it."""
    channels = next(iter(STAGES[network]))
    return (channels, 3, 1) if network == "resnet44" else (channels, 7, 2)


def blocks(network: str) -> Iterator[Block]:
    """The blocks of a ResNet in their order; the first one of each later stage halves the image."""
    channels, _, _ = stem(network)
    for stage, (width, count) in enumerate(STAGES[network].items(), start=1):
        for place in range(count):
            stride = 2 if stage > 1 and place == 0 else 1
            if network == "resnet44":
                branch: tuple[tuple[int, int, int], ...] = (width, 3, stride), (width, 3, 1)
                shortcut = "zeros" if stride == 2 else ""
            else:
                branch = (width, 1, 1), (width, 3, stride), (4 * width, 1, 1)
                shortcut = "convolution" if place == 0 else ""
            yield Block(f"layer{stage}", str(place), channels, branch, stride, shortcut)
            channels = branch[-1][0]


def head(network: str) -> str:
    """Torchvision's name of the last layer."""
    return "fc" if network.startswith("resnet") else "classifier"


def outputs_of(network: str, arrays: Mapping[str, np.ndarray]) -> int:
    """The number of outputs that these weights are for."""
    return len(arrays[f"{head(network)}.bias"])


def names_by_count(count: int) -> list[str]:
    """The names of the only known network with this number of arrays; ValueError without one."""
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


def _resnet(network: str) -> tuple[Shapes, int]:
    channels, size, _ = stem(network)
    found = _convolution("conv1", channels, 3, size) | _norm("bn1", channels)
    for block in blocks(network):
        channels = block.channels
        for number, (out, size, _) in enumerate(block.branch, start=1):
            found |= _convolution(f"{block.name}.conv{number}", out, channels, size)
            found |= _norm(f"{block.name}.bn{number}", out)
            channels = out
        if block.shortcut == "convolution":
            found |= _convolution(f"{block.name}.downsample.0", channels, block.channels, 1)
            found |= _norm(f"{block.name}.downsample.1", channels)
    return found, channels
