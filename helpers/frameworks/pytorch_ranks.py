"""PyTorch over several nodes, whose processes get their settings from torchrun's variables."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from helpers.frameworks.collectives import AllReduce


def gradient_all_reduce(replica: Any, devices: Sequence[Any]) -> AllReduce:
    """The all-reduce of one vector as long as all gradients, by the process group's backend.

    Args:
        replica: the notebook's; its process group is up.
        devices: this process's one.
    """
    import torch
    import torch.distributed as dist

    length = sum(each.numel() for each in replica.network.parameters() if each.requires_grad)
    vector = torch.zeros(length, device=devices[0])

    def once() -> torch.Tensor:
        dist.all_reduce(vector)
        return vector

    return AllReduce(once, vector.nbytes, dist.get_backend())


def gradients(
    framework: Any,
    model: Any,
    images: np.ndarray,
    targets: np.ndarray,
    devices: Sequence[Any],
) -> tuple[float, dict[str, np.ndarray]]:
    """Loss and gradients of the mean loss over all ranks, as the optimiser would get them.

    They are what DistributedDataParallel in the notebook's process group hands to the optimiser.

    Args:
        framework: the framework module, in this folder.
        model: the notebook's model; BatchNorm uses its running statistics.
        images: normalised floats (N, 3, H, W), those of all ranks.
        targets: labels (N, outputs), 0 or 1.
        devices: this process's.

    Returns:
        The mean loss, and the gradients by torchvision's names.
    """
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    rank, ranks = dist.get_rank(), dist.get_world_size()
    x, y = (np.array_split(array, ranks)[rank] for array in (images, targets))
    # A copy: what DDP hangs on the parameters would reduce their next gradients, too.
    parallel = DistributedDataParallel(copy.deepcopy(model).to(devices[0]).eval())
    loss, found = framework._local_gradients(parallel, x, y, devices[0])
    total = torch.tensor(loss, dtype=torch.float64, device=devices[0])
    dist.all_reduce(total)
    return total.item() / ranks, found
