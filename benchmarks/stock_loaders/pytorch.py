"""torchvision's ImageFolder behind a DataLoader: Pillow decodes, an image at a time, in Python.

Source: repository pytorch/examples, imagenet/main.py, "Data loading code" with its training
transform, which is also torchvision's own example for ImageFolder.

Nothing had to change but what all examples share; pinning the batch is an option, for there may be
no GPU. Of grey images, torchvision's transforms v2 in a `Dataset`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset
from torchvision import datasets, transforms
from torchvision.transforms import v2

import data_prep
from stock_loaders import labelled


def image_folder(
    folder: Path, workers: int, batch: int, crop: int, pinned: bool = False
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Normalised float32 (batch, 3, crop, crop), and classes (batch,)."""
    dataset = datasets.ImageFolder(
        str(folder),
        transforms.Compose(
            [
                transforms.RandomResizedCrop(crop),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
            ]
        ),
    )
    yield from batches(dataset, workers, batch, pinned)


class Crops(Dataset[tuple[torch.Tensor, int]]):
    """uint8 (1, crop, crop), and its class."""

    def __init__(self, folder: Path, crop: int) -> None:
        self.files = labelled(folder)
        self.transform = v2.Compose([v2.RandomCrop(crop), v2.RandomHorizontalFlip()])

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        path, label = self.files[i]
        return self.transform(torch.from_numpy(data_prep.read_grey(path)[None])), label


def own_crops(folder: Path, workers: int, batch: int, crop: int) -> Iterator[Any]:
    """uint8 (batch, 1, crop, crop), and classes (batch,)."""
    yield from batches(Crops(folder, crop), workers, batch, pinned=False)


def batches(dataset: Any, workers: int, batch: int, pinned: bool) -> Iterator[Any]:
    how: dict[str, Any] = {"shuffle": True, "drop_last": True, "pin_memory": pinned}
    loader = DataLoader(dataset, batch, num_workers=workers, **how)
    while True:
        yield from loader


EXAMPLES = {"torchvision's ImageFolder example (decodes in Python)": image_folder}
OWN = {"v2.RandomCrop, v2.RandomHorizontalFlip": own_crops}
