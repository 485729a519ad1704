"""The networks in JAX, written out as modules of Flax NNX, which has no model zoo.

Channels last; attributes bear torchvision's names, and a network computes in the dtype of the
images that it is given, while its weights and BatchNorm's statistics keep theirs. Three of Flax's
defaults would make other networks: ``SAME`` pads a layer with stride on the right first;
convolutions have biases; BatchNorm's momentum is the weight of the *old* value. One difference
stays: Flax keeps the biased variance, PyTorch the unbiased one.
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from helpers.networks import custom
from helpers.networks.shapes import BLOCKS, EXPANSION, GROWTH, RESNET44, RESNET50, head, outputs_of
from helpers.recipe import Recipe

Model: TypeAlias = nnx.Module
Made: TypeAlias = tuple[dict[str, Any], int]
"""A network's layers by name, without the last, and the channels that they end with."""


def build(
    network: str, arrays: Mapping[str, np.ndarray], recipe: Recipe, outputs: int = 0
) -> Model:
    """Until then its variables have shapes, and no values."""
    if network == "own":
        return _own(recipe, outputs)
    make = {"densenet121": _densenet121, "resnet44": _resnet44, "resnet50": _resnet50}

    def made() -> Model:
        rngs = undrawn()
        norm = partial(Norm, momentum=1 - recipe.bn_momentum, epsilon=recipe.bn_epsilon, rngs=rngs)
        convolution = partial(Convolution, rngs=rngs)
        layers, channels = (make | {"shallow": _shallow})[network](norm, convolution)
        last = nnx.Linear(channels, outputs_of(network, arrays), rngs=rngs)
        return Network(layers, head(network), last)

    model: Model = nnx.eval_shape(made)
    return model


def undrawn() -> Any:
    """A substitute for ``nnx.Rngs``, which draws ever more slowly in a trace."""
    key = jax.random.key(0)
    return SimpleNamespace(params=lambda: key)


def _own(recipe: Recipe, outputs: int) -> Model:
    images = jnp.zeros((custom.IMAGES, recipe.crop, recipe.crop, recipe.channels))

    def shape(model: Model) -> tuple[int, ...]:
        model.eval()
        found: tuple[int, ...] = model(images).shape  # type: ignore[operator]
        return found

    # Where the same seed draws the same.
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        model: Model = custom.make("jax", recipe, outputs, nnx.Module, shape)
    return model


def _as_images(arrays: tuple[Any, ...], **_: Any) -> tuple[Any, ...]:
    return tuple(None if array is None else array.astype(arrays[0].dtype) for array in arrays)


class Convolution(nnx.Conv):
    """Padded so that the image keeps its size, or half of it; no bias; in the images' dtype."""

    def __init__(
        self, channels: int, out: int, size: int, stride: int = 1, *, rngs: nnx.Rngs
    ) -> None:
        super().__init__(
            channels,
            out,
            (size, size),
            stride,
            padding=size // 2,
            use_bias=False,
            promote_dtype=_as_images,
            rngs=rngs,
        )


class Statistic(nnx.BatchStat):
    """Set as a whole: of a part Flax asks the sharding, which takes long in a trace."""

    def __setitem__(self, index: Any, value: Any) -> None:
        self.set_value(value)


class Norm(nnx.BatchNorm):
    """Computes in 32 bits, and gives what it is given: 16, where the convolutions do."""

    def __init__(self, channels: int, **how: Any) -> None:
        super().__init__(channels, **how)
        for name in ("mean", "var"):
            setattr(self, name, Statistic(getattr(self, name)[...]))

    def __call__(self, x: jax.Array, *given: Any, **named: Any) -> jax.Array:
        return super().__call__(x, *given, **named).astype(x.dtype)


class InTurn(nnx.Module):
    """Layers and functions by name, one after another."""

    def __init__(self, layers: Mapping[str, Any]) -> None:
        self.names = tuple(layers)
        for name, layer in layers.items():
            setattr(self, name, layer)

    def __call__(self, x: jax.Array) -> jax.Array:
        for name in self.names:
            x = getattr(self, name)(x)
        return x


class Network(InTurn):
    """Layers, the mean over the pixels, and the last layer, in the weights' dtype."""

    def __init__(self, layers: Mapping[str, Any], head: str, last: nnx.Linear) -> None:
        super().__init__(layers)
        self.head = head
        setattr(self, head, last)

    def __call__(self, x: jax.Array) -> jax.Array:
        last = getattr(self, self.head)
        x = super().__call__(x).astype(last.kernel[...].dtype)
        logits: jax.Array = last(x.mean((1, 2)))
        return logits


def _pooled(x: jax.Array) -> jax.Array:
    return nnx.max_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1)))


def _halved(x: jax.Array) -> jax.Array:
    return nnx.avg_pool(x, (2, 2), (2, 2))


class DenseLayer(InTurn):
    """New channels from all channels before, appended to them."""

    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.concatenate([x, super().__call__(x)], axis=-1)


def _shallow(norm: Callable[..., Any], convolution: Callable[..., Any]) -> Made:
    features = InTurn({"conv0": convolution(3, 64, 7, 2), "norm0": norm(64)})
    return {"features": features, "relu": jax.nn.relu}, 64


def _densenet121(norm: Callable[..., Any], convolution: Callable[..., Any]) -> Made:
    channels, between = 2 * GROWTH, 4 * GROWTH
    layers = {"conv0": convolution(3, channels, 7, 2), "norm0": norm(channels)}
    layers |= {"relu0": jax.nn.relu, "pool0": _pooled}
    for number, count in enumerate(BLOCKS, start=1):
        block = {}
        for layer in range(1, count + 1):
            steps = {"norm1": norm(channels), "relu1": jax.nn.relu}
            steps |= {"conv1": convolution(channels, between, 1)}
            steps |= {"norm2": norm(between), "relu2": jax.nn.relu}
            steps |= {"conv2": convolution(between, GROWTH, 3)}
            block[f"denselayer{layer}"] = DenseLayer(steps)
            channels += GROWTH
        layers[f"denseblock{number}"] = InTurn(block)
        if number < len(BLOCKS):
            steps = {"norm": norm(channels), "relu": jax.nn.relu}
            steps |= {"conv": convolution(channels, channels // 2, 1), "pool": _halved}
            layers[f"transition{number}"] = InTurn(steps)
            channels //= 2
    layers |= {"norm5": norm(channels), "relu5": jax.nn.relu}
    return {"features": InTurn(layers)}, channels


class Block(InTurn):
    """A branch added to what it was given, or to its shortcut."""

    def __init__(self, branch: Mapping[str, Any], downsample: Any = None) -> None:
        super().__init__(branch)
        self.downsample = downsample

    def __call__(self, x: jax.Array) -> jax.Array:
        short = x if self.downsample is None else self.downsample(x)
        return jax.nn.relu(short + super().__call__(x))


def _shortcut(x: jax.Array) -> jax.Array:
    """Every second pixel, with zeros in the added channels."""
    x = x[:, ::2, ::2]
    return jnp.concatenate([x, jnp.zeros_like(x)], axis=-1)


def _resnet44(norm: Callable[..., Any], convolution: Callable[..., Any]) -> Made:
    channels = next(iter(RESNET44))
    layers = {"conv1": convolution(3, channels, 3), "bn1": norm(channels), "relu": jax.nn.relu}
    for stage, (width, blocks) in enumerate(RESNET44.items(), start=1):
        made = {}
        for block in range(blocks):
            halves = stage > 1 and block == 0
            branch = {"conv1": convolution(channels, width, 3, 2 if halves else 1)}
            branch |= {"bn1": norm(width), "relu": jax.nn.relu}
            branch |= {"conv2": convolution(width, width, 3), "bn2": norm(width)}
            made[str(block)] = Block(branch, _shortcut if halves else None)
            channels = width
        layers[f"layer{stage}"] = InTurn(made)
    return layers, channels


def _resnet50(norm: Callable[..., Any], convolution: Callable[..., Any]) -> Made:
    channels = next(iter(RESNET50))
    layers = {"conv1": convolution(3, channels, 7, 2), "bn1": norm(channels)}
    layers |= {"relu": jax.nn.relu, "maxpool": _pooled}
    for stage, (width, blocks) in enumerate(RESNET50.items(), start=1):
        made = {}
        for block in range(blocks):
            stride, out = 2 if stage > 1 and block == 0 else 1, EXPANSION * width
            branch = {"conv1": convolution(channels, width, 1), "bn1": norm(width)}
            branch |= {"relu1": jax.nn.relu, "conv2": convolution(width, width, 3, stride)}
            branch |= {"bn2": norm(width), "relu2": jax.nn.relu}
            branch |= {"conv3": convolution(width, out, 1), "bn3": norm(out)}
            down = {"0": convolution(channels, out, 1, stride), "1": norm(out)}
            made[str(block)] = Block(branch, InTurn(down) if block == 0 else None)
            channels = out
        layers[f"layer{stage}"] = InTurn(made)
    return layers, channels
