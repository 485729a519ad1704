"""torchvision's ImageFolder behind a DataLoader: Pillow decodes, an image at a time, in Python.

Source: repository pytorch/examples, imagenet/main.py, "Data loading code" with its training
transform, which is also torchvision's own example for ImageFolder.

Nothing had to change but what all examples share; the batch is not pinned, for there may be no GPU.
"""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


def image_folder(
    folder: Path, workers: int, batch: int, crop: int
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
    loader = DataLoader(
        dataset, batch_size=batch, shuffle=True, num_workers=workers, drop_last=True
    )
    while True:
        yield from loader


EXAMPLES = {"torchvision's ImageFolder example (decodes in Python)": image_folder}
