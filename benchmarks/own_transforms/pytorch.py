"""torchvision's transforms v2 in a `Dataset`, which a `DataLoader` reads with worker processes."""

from collections.abc import Iterator
from itertools import islice

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from own_transforms import BATCH, CROP, OUTPUTS, Images

OWN = "v2.RandomCrop, v2.RandomHorizontalFlip"


class Crops(Dataset[torch.Tensor]):
    def __init__(self, images: Images, own: bool) -> None:
        self.images, self.own = images, own
        self.transform = v2.Compose([v2.RandomCrop(CROP), v2.RandomHorizontalFlip()])

    def __getitem__(self, key: tuple[int, int]) -> torch.Tensor:
        if not self.own:
            return torch.from_numpy(self.images.ours(key)).permute(2, 0, 1)
        pixels = torch.from_numpy(self.images.read(key[1])).permute(2, 0, 1)
        found: torch.Tensor = self.transform(pixels)
        return found


def train(images: Images, workers: int, own: bool) -> Iterator[None]:
    keys = images.keys()
    batches = iter(lambda: list(islice(keys, BATCH)), [])
    loader = DataLoader(Crops(images, own), batch_sampler=batches, num_workers=workers)
    network = nn.Sequential(
        nn.Conv2d(1, 8, 8, 8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, OUTPUTS),
    )
    optimizer = torch.optim.SGD(network.parameters(), 0.01)
    targets = torch.zeros(BATCH, OUTPUTS)
    for pixels in loader:
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(network(pixels / 255), targets).backward()
        optimizer.step()
        yield
