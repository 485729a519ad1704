"""Keras's image_dataset_from_directory: TensorFlow decodes and resizes, outside Python.

Source: repository keras-team/keras-io, examples/vision/image_classification_from_scratch.py, its
training data set with the augmentation by `map` that it advises for training on a CPU.

What had to change:

- Of its two augmentations only the random flip: the recipe has no rotation.
- `AUTOTUNE` is the number of workers, which are also tf.data's threads: as the notebook says,
  autotuning is off in its process. Keras's own decoding is left as it comes.

Of grey images, its preprocessing layers in `tf.data`'s `map`, an image at a time: given a batch,
Keras 3's `RandomCrop` crops all of its images at one place.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import tensorflow as tf

from stock_loaders.tensorflow import cropped


def from_directory(folder: Path, workers: int, batch: int, crop: int) -> Iterator[tuple[Any, Any]]:
    """float32 (batch, crop, crop, 3) between 0 and 255, and classes (batch,)."""
    flip = keras.layers.RandomFlip("horizontal")
    options = tf.data.Options()
    options.threading.private_threadpool_size = workers
    dataset = keras.utils.image_dataset_from_directory(
        str(folder), image_size=(crop, crop), batch_size=batch, verbose=False
    )
    yield from (
        dataset.repeat()
        .map(
            lambda images, labels: (flip(images, training=True), labels), num_parallel_calls=workers
        )
        .prefetch(2)
        .with_options(options)
    )


def own_crops(folder: Path, workers: int, batch: int, crop: int) -> Iterator[Any]:
    """float32 (batch, crop, crop, 1)."""
    layers = keras.layers.RandomCrop(crop, crop), keras.layers.RandomFlip("horizontal")

    def transform(pixels: Any) -> Any:
        for layer in layers:
            pixels = layer(pixels, training=True)
        return pixels

    yield from cropped(folder, workers, batch, transform)


EXAMPLES = {"image_dataset_from_directory": from_directory}
OWN = {"keras.layers.RandomCrop, RandomFlip": own_crops}
