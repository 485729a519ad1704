"""The networks in JAX, written out as modules of Flax NNX, which has no model zoo.

Channels last; attributes bear torchvision's names, and a network computes in the dtype of the
images that it is given, while its weights and BatchNorm's statistics keep theirs. Three of Flax's
defaults would make other networks: ``SAME`` pads a layer with stride on the right first;
convolutions have biases; BatchNorm's momentum is the weight of the *old* value. One difference
stays: Flax keeps the biased variance, PyTorch the unbiased one.
"""

from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from helpers.networks import custom
from helpers.networks.shapes import Layers, compose, head, outputs_of
from helpers.recipe import Recipe

Model: TypeAlias = nnx.Module


def build(network: str, arrays: Mapping[str, np.ndarray], recipe: Recipe) -> Model:
    """Until then its variables have shapes, and no values."""

    def made() -> Model:
        rngs = undrawn()
        norm = partial(Norm, momentum=1 - recipe.bn_momentum, epsilon=recipe.bn_epsilon, rngs=rngs)
        convolution = partial(Convolution, rngs=rngs)
        layers, channels = compose(network, LAYERS._replace(convolution=convolution, norm=norm))
        last = Last(channels, outputs_of(network, arrays), rngs=rngs)
        return InTurn(layers | {head(network): last})

    return nnx.eval_shape(made)


def undrawn() -> Any:
    """A substitute for ``nnx.Rngs``, which draws ever more slowly in a trace."""
    key = jax.random.key(0)
    return SimpleNamespace(params=lambda: key)


def own(recipe: Recipe, outputs: int) -> Model:
    images = jnp.zeros((custom.IMAGES, recipe.crop, recipe.crop, recipe.channels))

    def shape(model: Model) -> tuple[int, ...]:
        model.eval()
        return model(images).shape  # type: ignore[operator]

    # Where the same seed draws the same.
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        return custom.make("jax", recipe, outputs, nnx.Module, shape)


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


class Last(nnx.Linear):
    """The logits of the mean over all pixels, in the dtype of the weights."""

    def __call__(self, x: jax.Array) -> jax.Array:
        return super().__call__(x.astype(self.kernel[...].dtype).mean((1, 2)))


class DenseLayer(InTurn):
    """New channels from all channels before, appended to them."""

    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.concatenate([x, super().__call__(x)], axis=-1)


class Block(InTurn):
    """A branch added to what it was given, or to its shortcut."""

    def __init__(self, branch: Mapping[str, Any], downsample: Any) -> None:
        super().__init__(branch)
        self.downsample = downsample

    def __call__(self, x: jax.Array) -> jax.Array:
        short = x if self.downsample is None else self.downsample(x)
        return jax.nn.relu(short + super().__call__(x))


def _shortcut(x: jax.Array) -> jax.Array:
    """Every second pixel, with zeros in the added channels."""
    x = x[:, ::2, ::2]
    return jnp.concatenate([x, jnp.zeros_like(x)], axis=-1)


LAYERS = Layers(
    convolution=Convolution,
    norm=Norm,
    relu=jax.nn.relu,
    pool=partial(nnx.max_pool, window_shape=(3, 3), strides=(2, 2), padding=((1, 1), (1, 1))),
    halve=partial(nnx.avg_pool, window_shape=(2, 2), strides=(2, 2)),
    in_turn=InTurn,
    dense=DenseLayer,
    block=Block,
    zeros=_shortcut,
)
