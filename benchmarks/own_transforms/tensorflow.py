"""`tf.image` in `tf.data`'s `map`; tf.data reads with threads."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from own_transforms import BATCH, CROP, OUTPUTS, Images

OWN = "tf.image.random_crop, random_flip_left_right"


def crop_and_flip(pixels: Any) -> Any:
    return tf.image.random_flip_left_right(tf.image.random_crop(pixels, (CROP, CROP, 1)))


def batches(images: Images, workers: int, transform: Any = None) -> Any:
    """Crops by what transforms an image, else by the rule of the notebooks."""
    side = images.read(0).shape[0] if transform else CROP

    def read(key: np.ndarray) -> np.ndarray:
        epoch, i = map(int, key)
        return images.read(i) if transform else images.ours((epoch, i))

    def load(key: Any) -> Any:
        pixels = tf.ensure_shape(tf.numpy_function(read, [key], tf.uint8), (side, side, 1))
        return transform(pixels) if transform else pixels

    keys = tf.data.Dataset.from_generator(images.keys, output_signature=tf.TensorSpec(2, tf.int64))
    found = keys.map(load, num_parallel_calls=workers).batch(BATCH, drop_remainder=True)
    return found.prefetch(2)


def train(images: Images, workers: int, own: bool) -> Iterator[None]:
    random = tf.random.Generator.from_seed(0)
    filters = tf.Variable(random.normal((8, 8, 1, 8), stddev=0.1))
    weights = tf.Variable(random.normal((8, OUTPUTS), stddev=0.1))
    targets = tf.zeros((BATCH, OUTPUTS))

    @tf.function
    def step(pixels: Any) -> None:
        with tf.GradientTape() as tape:
            pixels = tf.cast(pixels, tf.float32) / 255
            found = tf.nn.relu(tf.nn.conv2d(pixels, filters, 8, "VALID"))
            logits = tf.reduce_mean(found, (1, 2)) @ weights
            losses = tf.nn.sigmoid_cross_entropy_with_logits(targets, logits)
            loss = tf.reduce_mean(losses)
        for variable, gradient in zip(
            (filters, weights), tape.gradient(loss, (filters, weights)), strict=True
        ):
            variable.assign_sub(0.01 * gradient)

    for pixels in batches(images, workers, crop_and_flip if own else None):
        step(pixels)
        yield
