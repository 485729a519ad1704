"""Gluon's ImageFolderDataset behind a DataLoader, and ImageRecordIter, which is MXNet's fastest.

Sources: repository apache/mxnet, docs/python_docs/python/tutorials/packages/gluon/data/datasets.md
with the transforms of data_augmentation.md; and example/image-classification, whose
common/data.py reads ImageNet by ImageRecordIter. OpenCV decodes in both: in the first an image at
a time, called from Python in the workers, in the second in MXNet's own threads.

What had to change:

- No jitter of colour and lighting: the recipe has none.
- ImageRecordIter's file, which tools/im2rec.py makes of a folder, is made here by the same function
  of MXNet's, once, next to the folder, with the files as they are.

Of grey images, Gluon's transforms in a `Dataset` behind worker threads. Gluon 1.9 has no random
crop of a fixed size: `RandomResizedCrop` of one scale is one.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mxnet as mx
from mxnet import recordio
from mxnet.gluon.data import DataLoader, Dataset
from mxnet.gluon.data.vision import ImageFolderDataset, transforms

import data_prep
from stock_loaders import labelled

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def image_folder(folder: Path, workers: int, batch: int, crop: int) -> Iterator[tuple[Any, Any]]:
    """Normalised float32 (batch, 3, crop, crop), and classes (batch,)."""
    transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(crop),
            transforms.RandomFlipLeftRight(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
    dataset = ImageFolderDataset(str(folder)).transform_first(transform)
    yield from batches(dataset, workers, batch)


def record_iter(folder: Path, workers: int, batch: int, crop: int) -> Iterator[tuple[Any, Any]]:
    """float32 (batch, 3, crop, crop) around 0, and classes (batch,)."""
    file = folder.parent / f"{folder.name}.rec"
    if not file.exists():
        _pack(folder, file)
    loader = mx.io.ImageRecordIter(
        path_imgrec=str(file),
        data_shape=(3, crop, crop),
        batch_size=batch,
        shuffle=True,
        rand_crop=True,
        rand_mirror=True,
        preprocess_threads=workers,
        mean_r=123.68,
        mean_g=116.779,
        mean_b=103.939,
    )
    while True:
        for found in loader:
            yield found.data[0], found.label[0]
        loader.reset()


def _pack(folder: Path, file: Path) -> None:
    record = recordio.MXRecordIO(str(file), "w")
    for number, (path, label) in enumerate(labelled(folder)):
        header = recordio.IRHeader(0, float(label), number, 0)
        record.write(recordio.pack(header, path.read_bytes()))
    record.close()


class Crops(Dataset):  # type: ignore[misc]
    """uint8 (crop, crop, 1), and its class."""

    def __init__(self, folder: Path, crop: int) -> None:
        self.files = labelled(folder)
        scale = (crop / data_prep.read_grey(self.files[0][0]).shape[0]) ** 2
        resized = transforms.RandomResizedCrop(crop, (scale, scale), (1, 1))
        self.transform = transforms.Compose([resized, transforms.RandomFlipLeftRight()])

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> tuple[Any, int]:
        path, label = self.files[i]
        pixels = data_prep.read_grey(path)[:, :, None]
        return self.transform(mx.nd.array(pixels, dtype="uint8")), label


def own_crops(folder: Path, workers: int, batch: int, crop: int) -> Iterator[Any]:
    """uint8 (batch, crop, crop, 1), and classes (batch,)."""
    yield from batches(Crops(folder, crop), workers, batch, thread_pool=True)


def batches(dataset: Any, workers: int, batch: int, **how: Any) -> Iterator[Any]:
    loader = DataLoader(
        dataset, batch, shuffle=True, last_batch="discard", num_workers=workers, **how
    )
    while True:
        yield from loader


OWN = {"Gluon's RandomResizedCrop, RandomFlipLeftRight": own_crops}
EXAMPLES = {
    "Gluon's ImageFolderDataset": image_folder,
    "ImageRecordIter": record_iter,
}
