"""The article's Chainer loader: float32 and three planes before the workers hand them over.

Source: repository ilkarman/DeepLearningFrameworks, notebooks/Chainer_MultiGPU.ipynb, class XrayData
and its MultiprocessIterator. Written anew; what it does to an image, and in which order, is the
article's: Pillow opens it as RGB and makes it 224 px, NumPy makes floats of it, channels first,
normalised, and flips it half of the time.

What had to change:

- To come to 224 px, published versions scale by the nearest pixel and augment by the flip only.
  Here it is a random crop, as this suite's recipe says, which costs about the same.
- 0 workers are a SerialIterator; the article had one worker for each core.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from chainer.dataset import DatasetMixin, concat_examples
from chainer.iterators import MultiprocessIterator, SerialIterator
from PIL import Image

MEAN = np.array([0.485, 0.456, 0.406], np.float32)
STD = np.array([0.229, 0.224, 0.225], np.float32)
READ_AHEAD = 10
"""Batches."""


class Files(DatasetMixin):  # type: ignore[misc]
    """RGB files, each with 14 labels."""

    def __init__(self, folder: Path, crop: int) -> None:
        self.paths = sorted(Path(folder).glob("images/*.png"))
        self.labels = np.zeros((len(self.paths), 14), np.int64)
        self.crop = crop

    def __len__(self) -> int:
        return len(self.paths)

    def get_example(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        image = Image.open(self.paths[number]).convert("RGB")
        left, top = (random.randint(0, side - self.crop) for side in image.size)
        image = image.crop((left, top, left + self.crop, top + self.crop))
        planes = np.asarray(image, dtype=np.float32).transpose(2, 0, 1) / 255.0
        planes = (planes - MEAN[:, None, None]) / STD[:, None, None]
        if random.randint(0, 1):
            planes = planes[:, :, ::-1]
        return np.array(planes, np.float32), np.array(self.labels[number], np.int32)


def batches(
    folder: Path, workers: int, batch: int = 64, crop: int = 224
) -> Iterator[tuple[Any, Any]]:
    """Batches without end: normalised float32 (batch, 3, crop, crop) and labels (batch, 14)."""
    files = Files(folder, crop)
    if workers:
        loader = MultiprocessIterator(
            files, batch, shared_mem=700_000, n_prefetch=READ_AHEAD, n_processes=workers
        )
    else:
        loader = SerialIterator(files, batch)
    try:
        for examples in loader:
            yield concat_examples(examples)
    finally:
        loader.finalize()
