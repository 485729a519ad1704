"""TensorFlow's tutorial on loading images: tf.data decodes and resizes, outside Python.

Source: repository tensorflow/docs, site/en/tutorials/load_data/images.ipynb, "Using tf.data for
finer control".

What had to change:

- No `cache`: it keeps the decoded images of a small set in memory; ImageNet's need 190 GB.
- `AUTOTUNE` is the number of workers, which are also tf.data's threads: as the notebook says,
  autotuning is off in its process.
- The files' names are shuffled before they are read, not 1,000 decoded images afterwards.

Of grey images, `tf.image` in `tf.data`'s `map`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

import data_prep
from stock_loaders import labelled


def tutorial(folder: Path, workers: int, batch: int, crop: int) -> Iterator[tuple[Any, Any]]:
    """float32 (batch, crop, crop, 3) between 0 and 255, and classes (batch,)."""
    classes = tf.constant(sorted(path.name for path in folder.iterdir() if path.is_dir()))

    def process(path: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        label = tf.argmax(tf.strings.split(path, "/")[-2] == classes)
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        return tf.image.resize(image, [crop, crop]), label

    options = tf.data.Options()
    options.threading.private_threadpool_size = workers
    yield from (
        tf.data.Dataset.list_files(str(folder / "*/*"))
        .repeat()
        .map(process, num_parallel_calls=workers)
        .batch(batch)
        .prefetch(2)
        .with_options(options)
    )


def own_crops(folder: Path, workers: int, batch: int, crop: int) -> Iterator[Any]:
    """uint8 (batch, crop, crop, 1)."""

    def transform(pixels: Any) -> Any:
        return tf.image.random_flip_left_right(tf.image.random_crop(pixels, (crop, crop, 1)))

    yield from cropped(folder, workers, batch, transform)


def cropped(
    folder: Path, workers: int, batch: int, transform: Callable[[Any], Any]
) -> Iterator[Any]:
    """Batches of what ``transform`` gives of each grey image, uint8 (side, side, 1)."""
    files = [str(path) for path, _ in labelled(folder)]

    def read(path: bytes) -> Any:
        return data_prep.read_grey(path.decode())[:, :, None]

    def load(path: Any) -> Any:
        pixels = tf.numpy_function(read, [path], tf.uint8)
        return transform(tf.ensure_shape(pixels, read(files[0].encode()).shape))

    dataset = tf.data.Dataset.from_tensor_slices(files).shuffle(len(files)).repeat()
    yield from dataset.map(load, num_parallel_calls=workers).batch(batch).prefetch(2)


EXAMPLES = {"tf.data's tutorial": tutorial}
OWN = {"tf.image.random_crop, random_flip_left_right": own_crops}
