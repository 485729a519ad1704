"""Keras's image_dataset_from_directory: TensorFlow decodes and resizes, outside Python.

Source: repository keras-team/keras-io, examples/vision/image_classification_from_scratch.py, its
training data set with the augmentation by `map` that it advises for training on a CPU.

What had to change:

- Of its two augmentations only the random flip: the recipe has no rotation.
- `AUTOTUNE` is the number of workers, which are also tf.data's threads: as the notebook says,
  autotuning is off in its process. Keras's own decoding is left as it comes.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import tensorflow as tf


def from_directory(folder: Path, workers: int, batch: int, crop: int) -> Iterator[tuple[Any, Any]]:
    """float32 (batch, crop, crop, 3) between 0 and 255, and classes (batch,)."""
    flip = keras.layers.RandomFlip("horizontal")
    options = tf.data.Options()
    options.threading.private_threadpool_size = max(1, workers)
    dataset = keras.utils.image_dataset_from_directory(
        str(folder), image_size=(crop, crop), batch_size=batch, verbose=False
    )
    yield from (
        dataset.repeat()
        .map(
            lambda images, labels: (flip(images, training=True), labels),
            num_parallel_calls=max(1, workers),
        )
        .prefetch(2)
        .with_options(options)
    )


EXAMPLES = {"image_dataset_from_directory": from_directory}
