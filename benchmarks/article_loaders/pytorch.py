"""The article's PyTorch loader: three float planes, an image at a time through torchvision.

Source: repository ilkarman/DeepLearningFrameworks, notebooks/PyTorch_MultiGPU.ipynb, class XrayData
and its training transform. Written anew; what it does to an image, and in which order, is the
article's: Pillow opens it, a random part scaled to the crop, a random flip, floats between 0 and 1
with the channels first, normalised.

Pinning the batch is an option, because there may be no GPU. The article had a worker for each core.
"""

from collections.abc import Iterator
from pathlib import Path

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class Files(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """RGB files, each with 14 labels."""

    def __init__(self, folder: Path, crop: int) -> None:
        self.paths = sorted(Path(folder).glob("images/*.png"))
        self.transform = transforms.Compose(
            [
                transforms.RandomResizedCrop(size=crop),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(MEAN, STD),
            ]
        )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        image = self.transform(Image.open(self.paths[number]))
        return image, torch.FloatTensor([0.0] * 14)


def batches(
    folder: Path, workers: int, batch: int = 64, crop: int = 224, pinned: bool = False
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Batches without end: normalised float32 (batch, 3, crop, crop) and labels (batch, 14)."""
    loader = DataLoader(
        Files(folder, crop), batch, shuffle=True, num_workers=workers, pin_memory=pinned
    )
    while True:
        yield from loader
