"""Keras's preprocessing layers in `tf.data`'s `map`, an image at a time.

Given a batch, Keras 3's `RandomCrop` crops all of its images at one place.
"""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from own_transforms import BATCH, CROP, OUTPUTS, Images
from own_transforms.tensorflow import batches

OWN = "keras.layers.RandomCrop, RandomFlip"


def train(images: Images, workers: int, own: bool) -> Iterator[None]:
    crop, flip = keras.layers.RandomCrop(CROP, CROP), keras.layers.RandomFlip("horizontal")

    def crop_and_flip(pixels: Any) -> Any:
        return flip(crop(pixels, training=True), training=True)

    layers = keras.layers
    network = keras.Sequential(
        [
            layers.Rescaling(1 / 255),
            layers.Conv2D(8, 8, 8, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(OUTPUTS, "sigmoid"),
        ]
    )
    network.compile("sgd", "binary_crossentropy")
    targets = np.zeros((BATCH, OUTPUTS), np.float32)
    for pixels in batches(images, workers, crop_and_flip if own else None):
        network.train_on_batch(pixels, targets)
        yield
