"""The article's Keras loader: ImageDataGenerator in worker processes.

Source: repository ilkarman/DeepLearningFrameworks, notebooks/Keras_TF_MultiGPU.ipynb, class
XrayData with augment=True, and its ``fit_generator(workers=..., use_multiprocessing=True,
max_queue_size=20)``. Written anew; what it does to an image is the article's: Pillow opens it as
RGB and resizes it to 224 px by nearest neighbour, a random flip, "torch" normalisation, and a
random crop to 224 px, which then has nothing left to cut off.

What had to change:

- ImageDataGenerator is deprecated; it is still in Keras 3, under ``keras.src.legacy``.
- ``fit_generator`` is gone. What it did is Keras 3's ``OrderedEnqueuer``, here with the same
  arguments and with nothing behind it.
- The data set is endless and indexed by the batch's number, because Keras 3 would otherwise restart
  its processes for every pass over the few files of a benchmark.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import numpy as np
from keras.src.legacy.preprocessing.image import ImageDataGenerator
from keras.src.trainers.data_adapters.py_dataset_adapter import OrderedEnqueuer

READ_AHEAD = 20
"""Batches; Keras's ``max_queue_size``."""


def batches(
    folder: Path, workers: int, batch: int = 64, crop: int = 224
) -> Iterator[tuple[Any, Any]]:
    """Batches without end: normalised float32 (batch, 3, crop, crop) and labels (batch, 14)."""
    enqueuer = OrderedEnqueuer(
        _Endless(Path(folder), batch, crop),
        workers=max(1, workers),
        use_multiprocessing=workers > 0,
        max_queue_size=READ_AHEAD,
    )
    enqueuer.start()
    try:
        yield from enqueuer.get()
    finally:
        enqueuer.stop()


class _Endless(keras.utils.PyDataset):
    """The article's generator over the files of ``folder/images``, again and again."""

    num_batches = None

    def __init__(self, folder: Path, batch: int, crop: int) -> None:
        super().__init__()

        def normalised(image: np.ndarray) -> np.ndarray:
            image = keras.applications.imagenet_utils.preprocess_input(
                image, data_format="channels_first", mode="torch"
            )
            return _random_crop(image, crop)

        self.flow = ImageDataGenerator(
            horizontal_flip=True,
            preprocessing_function=normalised,
            data_format="channels_first",
            dtype="float32",
        ).flow_from_directory(
            str(folder),
            classes=["images"],
            target_size=(crop, crop),
            batch_size=batch,
            class_mode=None,
        )
        self.whole = self.flow.n // batch  # the uneven last one left out
        self.labels = np.zeros((batch, 14), np.float32)

    def __getitem__(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        return self.flow[number % self.whole], self.labels


def _random_crop(image: np.ndarray, size: int) -> np.ndarray:
    """A random square of an image (3, height, width)."""
    top, left = (random.randint(0, pixels - size) for pixels in image.shape[1:])
    return image[:, top : top + size, left : left + size]
