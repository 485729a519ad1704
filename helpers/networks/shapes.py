"""The networks, written once of a framework's own layers, and their weights' names and shapes.

Both are torchvision's: names in its order, convolutions OIHW. ``densenet121`` (Huang et al. 2017,
https://arxiv.org/abs/1608.06993) and ``resnet50`` are in its zoo. ``resnet44`` is the one for CIFAR
(He et al. 2015, https://arxiv.org/abs/1512.03385, section 4.2, n = 7), with their shortcuts without
parameters: every second pixel, and zeros in the new channels. Its names follow those of resnet50.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

Shapes = dict[str, tuple[int, ...]]
Named = dict[str, Any]
"""Layers and functions by torchvision's names, one after another."""

NETWORKS = ("densenet121", "resnet44", "resnet50")
SHALLOW = "shallow"
"""The network that training loops are tested on: a DenseNet's beginning and end, with no block."""

GROWTH = 32
BLOCKS = (6, 12, 24, 16)
"""DenseNet121: new channels of each layer, and layers of each block."""

STAGES = {
    "resnet44": {16: 7, 32: 7, 64: 7},
    "resnet50": {64: 3, 128: 4, 256: 6, 512: 3},
}
"""For each ResNet, the channels of each stage's 3x3 convolutions, and its blocks."""

RUNNING = ("running_mean", "running_var")
NORM = ("weight", "bias", *RUNNING)


class Layers(NamedTuple):
    """A framework's layers; convolutions have no bias, and keep the image's size or halve it."""

    convolution: Callable[..., Any]
    """Takes channels, new channels, size and stride."""
    norm: Callable[[int], Any]
    relu: Any
    pool: Any
    """The maximum of 3x3 pixels, padded by one, at every second."""
    halve: Any
    """The mean of 2x2 pixels."""
    in_turn: Callable[[Named], Any]
    dense: Callable[[Named], Any]
    """The same, and its result is appended to what it is given."""
    block: Callable[[Named, Any], Any]
    """The same, and its result is added to what it is given, or to a shortcut's of that; ReLU."""
    zeros: Any
    """The shortcut without weights: every second pixel, and as many channels again, of zeros."""


def compose(network: str, of: Layers) -> tuple[Named, int]:
    """All but the mean over the pixels and the last layer, and the channels that this is given."""
    if network in STAGES:
        return _resnet(network, of)
    channels = 2 * GROWTH
    features = {"conv0": of.convolution(3, channels, 7, 2), "norm0": of.norm(channels)}
    if network != SHALLOW:
        channels = _dense_blocks(features, channels, of)
    return {"features": of.in_turn(features), "relu": of.relu}, channels


def _dense_blocks(layers: Named, channels: int, of: Layers) -> int:
    """Add them to the layers; returns the channels after them."""
    layers |= {"relu0": of.relu, "pool0": of.pool}
    for number, count in enumerate(BLOCKS, start=1):
        block = {}
        for layer in range(1, count + 1):
            steps = {"norm1": of.norm(channels), "relu1": of.relu}
            steps |= {"conv1": of.convolution(channels, 4 * GROWTH, 1)}
            steps |= {"norm2": of.norm(4 * GROWTH), "relu2": of.relu}
            steps |= {"conv2": of.convolution(4 * GROWTH, GROWTH, 3)}
            block[f"denselayer{layer}"] = of.dense(steps)
            channels += GROWTH
        layers[f"denseblock{number}"] = of.in_turn(block)
        if number < len(BLOCKS):
            steps = {"norm": of.norm(channels), "relu": of.relu}
            steps |= {"conv": of.convolution(channels, channels // 2, 1), "pool": of.halve}
            layers[f"transition{number}"] = of.in_turn(steps)
            channels //= 2
    layers["norm5"] = of.norm(channels)
    return channels


def _resnet(network: str, of: Layers) -> tuple[Named, int]:
    small, channels = network == "resnet44", next(iter(STAGES[network]))
    first = of.convolution(3, channels, 3) if small else of.convolution(3, channels, 7, 2)
    layers = {"conv1": first, "bn1": of.norm(channels), "relu": of.relu}
    layers |= {} if small else {"maxpool": of.pool}
    for stage, (width, count) in enumerate(STAGES[network].items(), start=1):
        blocks = {}
        for place in range(count):
            stride = 2 if stage > 1 and place == 0 else 1
            sizes = [(width, 3, stride), (width, 3, 1)]  # channels, size and stride
            if not small:
                sizes = [(width, 1, 1), (width, 3, stride), (4 * width, 1, 1)]
            into, channels, branch, down = channels, sizes[-1][0], Named(), None
            given = into
            for number, (out, size, step) in enumerate(sizes, start=1):
                branch |= {f"relu{number}": of.relu} if number > 1 else {}
                branch |= {f"conv{number}": of.convolution(given, out, size, step)}
                branch |= {f"bn{number}": of.norm(out)}
                given = out
            if small:
                down = of.zeros if stride == 2 else None
            elif place == 0:
                down = of.convolution(into, channels, 1, stride)
                down = of.in_turn({"0": down, "1": of.norm(channels)})
            blocks[str(place)] = of.block(branch, down)
        layers[f"layer{stage}"] = of.in_turn(blocks)
    return layers, channels


def shapes(network: str = "densenet121", outputs: int = 14) -> Shapes:
    """Name and shape of every array of a network in ``NETWORKS``, or of ``SHALLOW``."""
    layers, channels = compose(network, _SHAPES)
    last = {"weight": (outputs, channels), "bias": (outputs,)}
    return dict(_flat(layers | {head(network): last}))


def _flat(layers: Named, before: str = "") -> Iterator[tuple[str, tuple[int, ...]]]:
    for name, layer in layers.items():
        if isinstance(layer, dict):
            yield from _flat(layer, f"{before}{name}.")
        else:
            yield f"{before}{name}", layer


_SHAPES = Layers(
    convolution=lambda channels, out, size, stride=1: {"weight": (out, channels, size, size)},
    norm=lambda channels: dict.fromkeys(NORM, (channels,)),
    relu={},
    pool={},
    halve={},
    in_turn=dict,
    dense=dict,
    block=lambda branch, downsample: branch | {"downsample": downsample or {}},
    zeros={},
)
"""Layers of which a network is the shapes of its arrays."""


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
