"""ChainerMN over several nodes, whose processes get their settings from ``mpiexec``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from helpers.all_reduce import grids
from helpers.errors import UnsupportedError, UserError
from helpers.frameworks.collectives import AllReduce


def check_all_reduce(all_reduce: str, on_gpu: bool, ranks: int) -> tuple[str, grids.Shape]:
    """The communicator and the grid that a notebook's parameters cell names.

    Args:
        all_reduce: ``auto`` (NCCL's on GPUs, else ``naive``), ``naive``, ``rsaa`` or ``rsap``; the
            last two with a grid, ``rsap 2x4``, if it is not to be the squarest.
        on_gpu: whether the gradients are on GPUs.
        ranks: how many train.

    Raises:
        UserError: no such communicator, or a grid of another number of ranks.
        UnsupportedError: it cannot reduce what is on GPUs.
    """
    name = str(all_reduce).split(" ")[0]
    alone = name == all_reduce and name in ("auto", "naive")
    if not alone and name not in grids.OVER_GRIDS:
        raise UserError(
            f"all_reduce is {all_reduce!r}: give auto, naive, {', '.join(grids.OVER_GRIDS)}, and "
            f"with {' or '.join(grids.OVER_GRIDS)} a grid if it is not to be the squarest, such as "
            '"rsap 2x4"'
        )
    shape = (1, ranks) if alone else grids.named(all_reduce, ranks)[1]
    if on_gpu and name != "auto":
        raise UnsupportedError(
            f"all_reduce {all_reduce} adds up in the host's memory: on GPUs give auto"
        )
    return name, shape


def gradient_all_reduce(replica: Any, devices: Sequence[Any]) -> AllReduce:
    """The mean of all gradients by the notebook's communicator, as the multi-node optimiser does.

    Args:
        replica: the notebook's.
        devices: this process's one.
    """
    communicator = replica.communicator.communicator  # within the one that notes times
    parameters = list(replica.network.params())
    for each in parameters:
        each.grad = each.xp.zeros(each.shape, each.dtype)

    def once() -> Any:
        communicator.multi_node_mean_grad(replica.network)
        return parameters[0].grad

    by = getattr(communicator, "by", "naive" if devices[0].name == "@numpy" else "pure_nccl")
    return AllReduce(once, sum(each.grad.nbytes for each in parameters), by)


def gradients(
    framework: Any,
    model: Any,
    images: np.ndarray,
    targets: np.ndarray,
    devices: Sequence[Any],
) -> tuple[float, dict[str, np.ndarray]]:
    """Loss and gradients of the mean loss over all ranks, as the optimiser would get them.

    They are what the multi-node optimiser hands to the one in it, the means over all ranks.

    Args:
        framework: the framework module, in this folder.
        model: the notebook's model; BatchNorm uses its running statistics.
        images: normalised floats (N, 3, H, W), those of all ranks.
        targets: labels (N, outputs), 0 or 1.
        devices: this process's.

    Returns:
        The mean loss, and the gradients by torchvision's names.
    """
    return framework._mean_gradients(model, images, targets, devices[0])
