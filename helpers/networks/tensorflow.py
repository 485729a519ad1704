"""The networks in TensorFlow without Keras, written out because it has no model zoo.

Images are channels-last. Variables have torchvision's names, and a network computes in the dtype of
its images. ``SAME`` pads a layer with stride on the right first, and torchvision on both sides.
``fused_batch_norm`` is given the weight of the *new* value in its running averages and keeps the
unbiased variance, as PyTorch does.
"""

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from helpers.networks import custom
from helpers.networks.shapes import BLOCKS, RUNNING, Block, blocks, head, outputs_of, shapes, stem
from helpers.recipe import Recipe

Model: TypeAlias = tf.Module

NORM = ("weight", "bias", *RUNNING)


def build(
    network: str, arrays: Mapping[str, np.ndarray], recipe: Recipe, outputs: int = 0
) -> Model:
    """A model cannot be cast afterwards, so the weights' dtype is its own."""
    if network == "own":
        return _own(recipe, outputs)
    made = {"densenet121": DenseNet121, "resnet44": ResNet, "resnet50": ResNet}
    return (made | {"shallow": Shallow})[network](network, arrays, recipe)


def _own(recipe: Recipe, outputs: int) -> Model:
    images = tf.zeros((custom.IMAGES, recipe.crop, recipe.crop, recipe.channels))
    tf.random.set_seed(recipe.seed)
    with tf.device("CPU:0"):  # where the same seed draws the same
        model: Model = custom.make(
            "tensorflow", recipe, outputs, tf.Module, lambda model: model(images, False).shape
        )
    return model


class Network(tf.Module):
    """Normalised images (N, H, W, 3) to logits."""

    def __init__(self, network: str, arrays: Mapping[str, np.ndarray], recipe: Recipe) -> None:
        super().__init__()
        self.network, self.head, self.recipe, self.parts = network, head(network), recipe, {}
        dtype = arrays[f"{self.head}.bias"].dtype
        for name, shape in shapes(network, outputs_of(network, arrays)).items():
            if len(shape) > 1:  # OIHW to HWIO, and the last layer transposed
                shape = (*shape[2:], *shape[1::-1])
            self.parts[name] = tf.Variable(tf.zeros(shape, dtype), "running" not in name, name=name)

    def convolution(self, x: tf.Tensor, name: str, stride: int = 1, padding: int = 0) -> tf.Tensor:
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

    def norm_relu(self, x: tf.Tensor, name: str, training: bool) -> tf.Tensor:
        return tf.nn.relu(self.norm(x, name, training))

    def classified(self, x: tf.Tensor) -> tf.Tensor:
        """The mean over the pixels, through the last layer."""
        weight, bias = self.parts[f"{self.head}.weight"], self.parts[f"{self.head}.bias"]
        x = tf.reduce_mean(tf.cast(x, weight.dtype), axis=[1, 2])
        return tf.linalg.matmul(x, weight) + bias


class Shallow(Network):
    """One convolution with BatchNorm, and a classifier."""

    def __call__(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        x = self.convolution(x, "features.conv0", stride=2, padding=3)
        return self.classified(self.norm_relu(x, "features.norm0", training))


class DenseNet121(Network):
    """``features`` and a classifier."""

    def dense_layer(self, x: tf.Tensor, name: str, training: bool) -> tf.Tensor:
        y = self.convolution(self.norm_relu(x, f"{name}.norm1", training), f"{name}.conv1")
        y = self.convolution(self.norm_relu(y, f"{name}.norm2", training), f"{name}.conv2", 1, 1)
        return tf.concat([x, y], axis=-1)

    def __call__(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        x = self.convolution(x, "features.conv0", stride=2, padding=3)
        x = self.norm_relu(x, "features.norm0", training)
        x = _pooled(x)
        for block, layers in enumerate(BLOCKS, start=1):
            for layer in range(1, layers + 1):
                x = self.dense_layer(x, f"features.denseblock{block}.denselayer{layer}", training)
            if block < len(BLOCKS):
                name = f"features.transition{block}"
                x = self.convolution(self.norm_relu(x, f"{name}.norm", training), f"{name}.conv")
                x = tf.nn.avg_pool2d(x, 2, 2, "VALID")
        return self.classified(self.norm_relu(x, "features.norm5", training))


class ResNet(Network):
    """Convolutions in blocks; ResNet50 pools first."""

    def __call__(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        _, size, stride = stem(self.network)
        x = self.convolution(x, "conv1", stride, size // 2)
        x = self.norm_relu(x, "bn1", training)
        x = _pooled(x) if self.network == "resnet50" else x
        for block in blocks(self.network):
            x = self.block(x, block, training)
        return self.classified(x)

    def block(self, x: tf.Tensor, block: Block, training: bool) -> tf.Tensor:
        y, name = x, block.name
        for number, (_, size, stride) in enumerate(block.branch, start=1):
            y = tf.nn.relu(y) if number > 1 else y
            y = self.convolution(y, f"{name}.conv{number}", stride, size // 2)
            y = self.norm(y, f"{name}.bn{number}", training)
        if block.shortcut == "zeros":  # every second pixel, and as many channels again
            x = x[:, ::2, ::2]
            x = tf.concat([x, tf.zeros_like(x)], axis=-1)
        elif block.shortcut:
            x = self.convolution(x, f"{name}.downsample.0", block.stride)
            x = self.norm(x, f"{name}.downsample.1", training)
        return tf.nn.relu(x + y)


def _pooled(x: tf.Tensor) -> tf.Tensor:
    """Padded by an operation of its own: XLA refuses to pool with paddings given as numbers."""
    x = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])  # no value is below zero
    return tf.nn.max_pool2d(x, 3, 2, "VALID")
