"""The article's TensorFlow loader: tf.data, in float32 and three planes from the file on.

Source: repository ilkarman/DeepLearningFrameworks, notebooks/Tensorflow_MultiGPU.ipynb, class
XrayData in mode "training". Written anew; what it does to an image, and in which order, is the
article's: decode as RGB, to float, minus the channel means, times 0.017, a random crop, a random
flip, channels first.

What had to change:

- ``tf.contrib.data.map_and_batch`` is ``tf.data.experimental.map_and_batch`` now, deprecated; as
  then it works by default on one batch at a time, its images in parallel.
- ``workers`` is the number of tf.data's threads, which the article left to TensorFlow.
- ``tf.read_file``, ``tf.image.decode_png``, ``tf.to_float`` and ``tf.random_crop`` have moved.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

MEAN = np.array([123.68, 116.78, 103.94], np.float32)
"""Caffe's channel means, which the article's checkpoint was trained with."""

SCALE = 0.017
READ_AHEAD = 10
"""Batches."""


def batches(
    folder: Path, workers: int, batch: int = 64, crop: int = 224
) -> Iterator[tuple[Any, Any]]:
    """Batches without end: normalised float32 (batch, 3, crop, crop) and labels (batch, 14)."""
    paths = sorted(str(path) for path in Path(folder).glob("images/*.png"))

    def ready(path: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        image = tf.cast(tf.io.decode_png(tf.io.read_file(path), channels=3), tf.float32)
        image = (image - MEAN) * SCALE
        image = tf.image.random_crop(image, [crop, crop, 3])
        image = tf.image.random_flip_left_right(image)
        return tf.transpose(image, [2, 0, 1]), tf.cast(label, tf.float32)

    options = tf.data.Options()
    options.threading.private_threadpool_size = max(1, workers)
    dataset = (
        tf.data.Dataset.from_tensor_slices((paths, np.zeros((len(paths), 14), np.int64)))
        .shuffle(len(paths))
        .repeat()
        .apply(tf.data.experimental.map_and_batch(ready, batch))
        .prefetch(READ_AHEAD)
        .with_options(options)
    )
    yield from dataset
