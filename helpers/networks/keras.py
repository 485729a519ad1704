"""The networks in Keras: its own DenseNet121, and ResNets built of its layers.

DenseNet121 of ``keras.applications`` is torchvision's once BatchNorm's epsilon and momentum (in
Keras the weight of the *old* value) are the recipe's. Its ResNet50 is another network: convolutions
have biases, and a stage's first block halves the image in its first 1x1 convolution. One difference
stays: Keras keeps the biased variance, PyTorch the unbiased one.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from helpers.networks import custom
from helpers.networks.shapes import STAGES, blocks, outputs_of, stem
from helpers.recipe import Recipe

Model: TypeAlias = keras.Model


def build(
    network: str, arrays: Mapping[str, np.ndarray], recipe: Recipe, outputs: int = 0
) -> Model:
    if network == "own":
        return _own(recipe, outputs)
    make = {"densenet121": _densenet121, "shallow": _shallow}
    images, pooled, last = _resnet(network) if network in STAGES else make[network]()
    # Whatever the layers compute in, the last one and the logits are of the weights' type.
    outputs, dtype = outputs_of(network, arrays), keras.config.floatx()
    model = keras.Model(images, layers.Dense(outputs, name=last, dtype=dtype)(pooled))
    for layer in model.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.epsilon, layer.momentum = recipe.bn_epsilon, 1 - recipe.bn_momentum
    return model


def _own(recipe: Recipe, outputs: int) -> Model:
    images = keras.ops.zeros((custom.IMAGES, recipe.crop, recipe.crop, recipe.channels))
    tf.random.set_seed(recipe.seed)  # Keras itself draws by Python's
    with keras.device("cpu"):  # where the same seed draws the same
        model: Model = custom.make(
            "keras", recipe, outputs, keras.Model, lambda model: model(images, training=False).shape
        )
    return model


def _densenet121() -> tuple[Any, Any, str]:
    """The images, the mean over the pixels of what becomes of them, and the last layer's name."""
    backbone = keras.applications.DenseNet121(
        include_top=False,
        weights=None,
        input_shape=(None, None, 3),  # any size
        pooling="avg",
    )
    return backbone.input, backbone.output, "predictions"


def _shallow() -> tuple[Any, Any, str]:
    images = keras.Input((None, None, 3))
    x = _norm_relu(_convolution(images, 64, 7, "conv1_conv", 2), "conv1_bn")
    return images, layers.GlobalAveragePooling2D()(x), "predictions"


def _resnet(network: str) -> tuple[Any, Any, str]:
    images, (channels, size, stride) = keras.Input((None, None, 3)), stem(network)
    x = _norm_relu(_convolution(images, channels, size, "conv1", stride), "bn1")
    if network == "resnet50":
        x = layers.MaxPooling2D(3, 2)(layers.ZeroPadding2D(1)(x))  # no value is below zero
    for block in blocks(network):
        y, name = x, block.name
        for number, (channels, size, stride) in enumerate(block.branch, start=1):
            y = layers.ReLU()(y) if number > 1 else y
            y = _convolution(y, channels, size, f"{name}.conv{number}", stride)
            y = _norm(y, f"{name}.bn{number}")
        if block.shortcut == "zeros":  # every second pixel, and as many channels again
            x = layers.MaxPooling2D(1, 2)(x)
            x = layers.Concatenate()([x, keras.ops.zeros_like(x)])
        elif block.shortcut:
            x = _convolution(x, channels, 1, f"{name}.downsample.0", block.stride)
            x = _norm(x, f"{name}.downsample.1")
        x = layers.ReLU()(layers.Add()([x, y]))
    return images, layers.GlobalAveragePooling2D()(x), "fc"


def _convolution(x: Any, channels: int, size: int, name: str, stride: int = 1) -> Any:
    if stride > 1 and size > 1:  # "same" would pad on the right first, torchvision does both sides
        x = layers.ZeroPadding2D(size // 2)(x)
    padding = "same" if stride == 1 else "valid"
    name = name.replace(".", "_")
    return layers.Conv2D(channels, size, stride, padding, use_bias=False, name=name)(x)


def _norm(x: Any, name: str) -> Any:
    return layers.BatchNormalization(name=name.replace(".", "_"))(x)


def _norm_relu(x: Any, name: str) -> Any:
    return layers.ReLU()(_norm(x, name))
