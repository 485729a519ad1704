"""TensorFlow's tutorial on loading images: tf.data decodes and resizes, outside Python.

Source: repository tensorflow/docs, site/en/tutorials/load_data/images.ipynb, "Using tf.data for
finer control".

What had to change:

- No `cache`: it keeps the decoded images of a small set in memory; ImageNet's need 190 GB.
- `AUTOTUNE` is the number of workers, which are also tf.data's threads: as the notebook says,
  autotuning is off in its process.
- The files' names are shuffled before they are read, not 1,000 decoded images afterwards.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf


def tutorial(folder: Path, workers: int, batch: int, crop: int) -> Iterator[tuple[Any, Any]]:
    """float32 (batch, crop, crop, 3) between 0 and 255, and classes (batch,)."""
    classes = tf.constant(sorted(path.name for path in folder.iterdir() if path.is_dir()))

    def process(path: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        label = tf.argmax(tf.strings.split(path, "/")[-2] == classes)
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        return tf.image.resize(image, [crop, crop]), label

    options = tf.data.Options()
    options.threading.private_threadpool_size = max(1, workers)
    yield from (
        tf.data.Dataset.list_files(str(folder / "*/*"))
        .repeat()
        .map(process, num_parallel_calls=max(1, workers))
        .batch(batch)
        .prefetch(2)
        .with_options(options)
    )


EXAMPLES = {"tf.data's tutorial": tutorial}
