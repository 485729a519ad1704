"""The networks in Keras, composed of its layers; DenseNet121 is as ``keras.applications`` has it.

Its ResNet50 there is another network: convolutions have biases, and a stage's first block halves
the image in its first 1x1 convolution. BatchNorm's momentum is in Keras the weight of the *old*
value. One difference stays: Keras keeps the biased variance, PyTorch the unbiased one.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from helpers.networks import custom
from helpers.networks.shapes import Layers, compose, head, outputs_of
from helpers.recipe import Recipe

Model: TypeAlias = keras.Model
Step: TypeAlias = Callable[[Any, str], Any]
"""What becomes of a symbolic tensor in a layer of this name, torchvision's."""


def build(network: str, arrays: Mapping[str, np.ndarray], recipe: Recipe) -> Model:
    norm = {"epsilon": recipe.bn_epsilon, "momentum": 1 - recipe.bn_momentum}
    of = LAYERS._replace(norm=lambda channels: _layer(layers.BatchNormalization, **norm))
    images = keras.Input((None, None, 3))  # any size
    pooled = layers.GlobalAveragePooling2D()(_in_turn(compose(network, of)[0])(images, ""))
    # Whatever the layers compute in, the last one and the logits are of the weights' type.
    how = {"name": head(network), "dtype": keras.config.floatx()}
    return keras.Model(images, layers.Dense(outputs_of(network, arrays), **how)(pooled))


def own(recipe: Recipe, outputs: int) -> Model:
    images = keras.ops.zeros((custom.IMAGES, recipe.crop, recipe.crop, recipe.channels))
    tf.random.set_seed(recipe.seed)  # Keras itself draws by Python's
    with keras.device("cpu"):  # where the same seed draws the same
        return custom.make(
            "keras", recipe, outputs, keras.Model, lambda model: model(images, training=False).shape
        )


def _layer(kind: Callable[..., Any], *given: Any, **how: Any) -> Step:
    return lambda x, name: kind(*given, name=name.replace(".", "_"), **how)(x)


def _convolution(channels: int, out: int, size: int, stride: int = 1) -> Step:
    if stride == 1 or size == 1:
        return _layer(layers.Conv2D, out, size, stride, "same", use_bias=False)
    made = _layer(layers.Conv2D, out, size, stride, use_bias=False)
    # "same" would pad on the right first, torchvision does on both sides.
    return lambda x, name: made(layers.ZeroPadding2D(size // 2)(x), name)


def _in_turn(made: Mapping[str, Step]) -> Step:
    def call(x: Any, name: str) -> Any:
        for part, layer in made.items():
            x = layer(x, f"{name}.{part}".lstrip("."))
        return x

    return call


def _dense(made: Mapping[str, Step]) -> Step:
    return lambda x, name: layers.Concatenate()([x, _in_turn(made)(x, name)])


def _block(branch: Mapping[str, Step], downsample: Step | None) -> Step:
    def call(x: Any, name: str) -> Any:
        y = _in_turn(branch)(x, name)
        x = x if downsample is None else downsample(x, f"{name}.downsample")
        return layers.ReLU()(layers.Add()([x, y]))

    return call


def _pooled(x: Any, name: str) -> Any:
    return layers.MaxPooling2D(3, 2)(layers.ZeroPadding2D(1)(x))  # no value is below zero


def _shortcut(x: Any, name: str) -> Any:
    x = layers.MaxPooling2D(1, 2)(x)
    return layers.Concatenate()([x, keras.ops.zeros_like(x)])


LAYERS = Layers(
    convolution=_convolution,
    norm=lambda channels: _layer(layers.BatchNormalization),
    relu=_layer(layers.ReLU),
    pool=_pooled,
    halve=_layer(layers.AveragePooling2D, 2),
    in_turn=_in_turn,
    dense=_dense,
    block=_block,
    zeros=_shortcut,
)
