"""The article's Gluon loader: arrays of MXNet in float32, one by one through its transforms.

Source: repository ilkarman/DeepLearningFrameworks, notebooks/Gluon_MultiGPU.ipynb, class XrayData
and its training transform. Written anew; what it does to an image, and in which order, is the
article's: Pillow opens it, MXNet makes an array of it, a random part scaled to the crop, a random
flip, floats between 0 and 1 with the channels first, normalised.

The article had 12 workers.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.gluon.data import DataLoader, Dataset
from mxnet.gluon.data.vision import transforms
from PIL import Image

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class Files(Dataset):  # type: ignore[misc]
    """RGB files, each with 14 labels."""

    def __init__(self, folder: Path, crop: int) -> None:
        self.paths = sorted(str(path) for path in Path(folder).glob("images/*.png"))
        self.labels = np.zeros((len(self.paths), 14), np.float32)
        self.transform = transforms.Compose(
            [
                transforms.RandomResizedCrop(size=crop),
                transforms.RandomFlipLeftRight(),
                transforms.ToTensor(),
                transforms.Normalize(MEAN, STD),
            ]
        )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        image = mx.nd.array(Image.open(self.paths[number]))
        return self.transform(image), mx.nd.array(self.labels[number])


def batches(
    folder: Path, workers: int, batch: int = 64, crop: int = 224
) -> Iterator[tuple[Any, Any]]:
    """Batches without end: normalised float32 (batch, 3, crop, crop) and labels (batch, 14)."""
    loader = DataLoader(
        Files(folder, crop),
        batch_size=batch,
        shuffle=True,
        last_batch="discard",
        num_workers=workers,
    )
    while True:
        yield from loader
