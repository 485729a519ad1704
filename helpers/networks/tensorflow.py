"""The networks in TensorFlow without Keras, composed because it has no model zoo.

Images are channels-last. Variables have torchvision's names, and a network computes in the dtype of
its images. ``SAME`` pads a layer with stride on the right first, and torchvision on both sides.
``fused_batch_norm`` is given the weight of the *new* value in its running averages and keeps the
unbiased variance, as PyTorch does.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from helpers.networks import custom
from helpers.networks.shapes import NORM, Layers, compose, head, outputs_of, shapes
from helpers.recipe import Recipe

Model: TypeAlias = tf.Module
Step: TypeAlias = Callable[..., tf.Tensor]
"""A layer: of the network, what it is given, the layer's name, and whether it is training."""


def build(network: str, arrays: Mapping[str, np.ndarray], recipe: Recipe) -> Model:
    """A model cannot be cast afterwards, so the weights' dtype is its own."""
    return Network(network, arrays, recipe)


def own(recipe: Recipe, outputs: int) -> Model:
    images = tf.zeros((custom.IMAGES, recipe.crop, recipe.crop, recipe.channels))
    tf.random.set_seed(recipe.seed)
    with tf.device("CPU:0"):  # where the same seed draws the same
        return custom.make(
            "tensorflow", recipe, outputs, tf.Module, lambda model: model(images, False).shape
        )


class Network(tf.Module):
    """Normalised images (N, H, W, 3) to logits."""

    def __init__(self, network: str, arrays: Mapping[str, np.ndarray], recipe: Recipe) -> None:
        super().__init__()
        self.layers = _in_turn(compose(network, LAYERS)[0])
        self.head, self.recipe, self.parts = head(network), recipe, {}
        dtype = arrays[f"{self.head}.bias"].dtype
        for name, shape in shapes(network, outputs_of(network, arrays)).items():
            if len(shape) > 1:  # OIHW to HWIO, and the last layer transposed
                shape = (*shape[2:], *shape[1::-1])
            self.parts[name] = tf.Variable(tf.zeros(shape, dtype), "running" not in name, name=name)

    def __call__(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        x = self.layers(self, x, "", training)
        weight, bias = self.parts[f"{self.head}.weight"], self.parts[f"{self.head}.bias"]
        x = tf.reduce_mean(tf.cast(x, weight.dtype), axis=[1, 2])
        return tf.linalg.matmul(x, weight) + bias

    def convolution(self, x: tf.Tensor, name: str, stride: int, padding: int) -> tf.Tensor:
        kernel = tf.cast(self.parts[f"{name}.weight"], x.dtype)
        around: str | list[list[int]] = [[0, 0], [padding, padding], [padding, padding], [0, 0]]
        if stride == 1 or padding == 0:  # the same by name, for which CPUs have quicker kernels
            around = "SAME" if padding else "VALID"
        return tf.nn.conv2d(x, kernel, stride, around)

    def norm(self, x: tf.Tensor, name: str, training: bool) -> tf.Tensor:
        scale, offset, mean, variance = parts = [self.parts[f"{name}.{part}"] for part in NORM]
        epsilon, share = self.recipe.bn_epsilon, self.recipe.bn_momentum if training else 1.0
        if x.dtype == tf.float64:  # for the fairness check; the fused operation cannot
            return tf.nn.batch_normalization(x, mean, variance, offset, scale, epsilon)
        x, new_mean, new_variance = tf.compat.v1.nn.fused_batch_norm(
            x, *parts, epsilon, is_training=training, exponential_avg_factor=share
        )
        if training:
            mean.assign(new_mean)
            variance.assign(new_variance)
        return x


def _convolution(channels: int, out: int, size: int, stride: int = 1) -> Step:
    return lambda network, x, name, _: network.convolution(x, name, stride, size // 2)


def _in_turn(layers: Mapping[str, Step]) -> Step:
    def call(network: Network, x: tf.Tensor, name: str, training: bool) -> tf.Tensor:
        for part, layer in layers.items():
            x = layer(network, x, f"{name}.{part}".lstrip("."), training)
        return x

    return call


def _dense(layers: Mapping[str, Step]) -> Step:
    made = _in_turn(layers)
    return lambda network, x, *how: tf.concat([x, made(network, x, *how)], axis=-1)


def _block(branch: Mapping[str, Step], downsample: Step | None) -> Step:
    def call(network: Network, x: tf.Tensor, name: str, training: bool) -> tf.Tensor:
        y = _in_turn(branch)(network, x, name, training)
        if downsample is not None:
            x = downsample(network, x, f"{name}.downsample", training)
        return tf.nn.relu(x + y)

    return call


def _pooled(_: Any, x: tf.Tensor, *how: Any) -> tf.Tensor:
    """Padded by an operation of its own: XLA refuses to pool with paddings given as numbers."""
    x = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])  # no value is below zero
    return tf.nn.max_pool2d(x, 3, 2, "VALID")


def _shortcut(_: Any, x: tf.Tensor, *how: Any) -> tf.Tensor:
    x = x[:, ::2, ::2]
    return tf.concat([x, tf.zeros_like(x)], axis=-1)


LAYERS = Layers(
    convolution=_convolution,
    norm=lambda channels: Network.norm,
    relu=lambda network, x, *how: tf.nn.relu(x),
    pool=_pooled,
    halve=lambda network, x, *how: tf.nn.avg_pool2d(x, 2, 2, "VALID"),
    in_turn=_in_turn,
    dense=_dense,
    block=_block,
    zeros=_shortcut,
)
