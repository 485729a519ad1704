"""Train with plain PyTorch: torchvision's model in eager mode, and Adam with its defaults.

In DistributedDataParallel with its defaults, where this process is one of several.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torchvision.models import densenet121


def make(pixels: int, batch: int) -> Callable[[int], None]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = densenet121(num_classes=14).to(device)
    if dist.is_initialized() and dist.get_world_size() > 1:
        model = DistributedDataParallel(model)
    criterion = torch.nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    images = torch.randn(batch, 3, pixels, pixels, device=device)
    targets = torch.zeros(batch, 14, device=device)

    def take(steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            criterion(model(images), targets).backward()
            optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return take
