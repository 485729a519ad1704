"""PyTorch over several nodes: all that its processes need is in torchrun's variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from helpers.frameworks.over_nodes import AllReduce
from helpers.frameworks.place import Place


def environment(here: Place) -> dict[str, str]:
    """Nothing but what every rank has."""
    return {}


def gradient_all_reduce(replica: Any, devices: Sequence[Any]) -> AllReduce:
    """The all-reduce of one vector as long as all gradients, by the process group's backend.

    Args:
        replica: the lesson's; its process group is up.
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
