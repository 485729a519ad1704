"""Computations in PyTorch for the fairness check and the self-test.

``devices`` holds one device inside a replica; functions that are given several start processes.
"""

import copy
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from helpers.frameworks import replicas
from helpers.frameworks.pytorch_state import dump_weights, load_weights
from helpers.networks import pytorch as networks
from helpers.recipe import RECIPES

Device: TypeAlias = torch.device
Model: TypeAlias = torch.nn.Module


def exact(
    build_model: Callable[[Mapping[str, np.ndarray]], Model], weights: Mapping[str, np.ndarray]
) -> Model:
    model = build_model(weights).double()
    load_weights(model, weights)
    return model


def shallow(weights: Mapping[str, np.ndarray], devices: Sequence[Device]) -> Model:
    model = networks.build("shallow", weights, RECIPES["chexnet"])
    model = model.to(devices[0], torch.from_numpy(weights["classifier.bias"]).dtype)
    load_weights(model, weights)
    return model


def logits(model: Model, images: np.ndarray) -> np.ndarray:
    first = next(model.parameters())
    model.eval()
    with torch.no_grad():
        batch = torch.from_numpy(images).to(first.device, first.dtype)
        return model(batch).cpu().numpy()


def train_forward(model: Model, images: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    trained = copy.deepcopy(model).train()
    first = next(trained.parameters())
    with torch.no_grad():
        found = trained(torch.from_numpy(images).to(first.device, first.dtype))
    return found.cpu().numpy(), dump_weights(trained)


def gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    """What DistributedDataParallel over ``devices`` hands to the optimiser."""
    model.eval()
    if len(devices) == 1:
        return _local_gradients(model, images, targets, devices[0])

    def replica(rank: int) -> tuple[float, dict[str, np.ndarray]]:
        backend = "nccl" if devices[0].type == "cuda" else "gloo"
        address = os.environ[replicas.RENDEZVOUS]
        dist.init_process_group(backend, address, rank=rank, world_size=len(devices))
        loss, found = rank_gradients(model, images, targets, [devices[rank]])
        dist.destroy_process_group()
        return loss, found if rank == 0 else {}

    return replicas.run(replica, len(devices))[0]


def rank_gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    """What DistributedDataParallel in the notebook's process group hands to the optimiser."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    x, y = (np.array_split(array, ranks)[rank] for array in (images, targets))
    # A copy: what DDP hangs on the parameters would reduce their next gradients, too.
    parallel = DistributedDataParallel(copy.deepcopy(model).to(devices[0]).eval())
    loss, found = _local_gradients(parallel, x, y, devices[0])
    total = torch.tensor(loss, dtype=torch.float64, device=devices[0])
    dist.all_reduce(total)
    return total.item() / ranks, found


@contextmanager
def seen_by(model: Model) -> Iterator[list[np.ndarray]]:
    seen: list[np.ndarray] = []
    first = next(layer for layer in model.modules() if isinstance(layer, torch.nn.Conv2d))
    hook = first.register_forward_pre_hook(
        lambda layer, given: seen.append(given[0].float().cpu().numpy())
    )
    try:
        yield seen
    finally:
        hook.remove()


def _local_gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, device: Device
) -> tuple[float, dict[str, np.ndarray]]:
    """One forward and backward pass of one process."""
    model.to(device).zero_grad()
    kind = next(model.parameters()).dtype
    x, y = (torch.from_numpy(part).to(device, kind) for part in (images, targets))
    loss = F.binary_cross_entropy_with_logits(model(x), y)
    loss.backward()
    found = {
        name.removeprefix("module."): parameter.grad.cpu().numpy().copy()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    return loss.item(), found
