"""The networks, written once, of a framework's own layers: for those without torchvision's zoo."""

from collections.abc import Callable
from typing import Any, NamedTuple

from helpers.networks.shapes import BLOCKS, GROWTH, SHALLOW, STAGES, blocks, stem

Named = dict[str, Any]
"""Layers and functions by torchvision's names, one after another."""


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
    features, channels = _densenet121(of) if network != SHALLOW else _stem("conv0", "norm0", of, 64)
    return {"features": of.in_turn(features), "relu": of.relu}, channels


def _stem(
    convolution: str, norm: str, of: Layers, channels: int, size: int = 7, stride: int = 2
) -> tuple[Named, int]:
    made = {convolution: of.convolution(3, channels, size, stride), norm: of.norm(channels)}
    return made, channels


def _densenet121(of: Layers) -> tuple[Named, int]:
    layers, channels = _stem("conv0", "norm0", of, 2 * GROWTH)
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
    return layers | {"norm5": of.norm(channels)}, channels


def _resnet(network: str, of: Layers) -> tuple[Named, int]:
    layers, channels = _stem("conv1", "bn1", of, *stem(network))
    layers |= {"relu": of.relu} | ({"maxpool": of.pool} if network == "resnet50" else {})
    stages: dict[str, Named] = {}
    for block in blocks(network):
        channels, branch, down = block.channels, Named(), None
        for number, (out, size, stride) in enumerate(block.branch, start=1):
            branch |= {f"relu{number}": of.relu} if number > 1 else {}
            branch |= {f"conv{number}": of.convolution(channels, out, size, stride)}
            branch |= {f"bn{number}": of.norm(out)}
            channels = out
        if block.shortcut == "zeros":
            down = of.zeros
        elif block.shortcut:
            down = of.convolution(block.channels, channels, 1, block.stride)
            down = of.in_turn({"0": down, "1": of.norm(channels)})
        stages.setdefault(block.stage, {})[block.place] = of.block(branch, down)
    return layers | {name: of.in_turn(each) for name, each in stages.items()}, channels
