"""The framework-specific helper functions for ChainerMN: Chainer's, extended to all ranks.

Peculiar to ChainerMN: each device has a process, a *rank*, that ``mpiexec`` has started, and the
multi-node optimiser takes the **mean** of their gradients. So the functions here are called inside
a rank, ``devices`` holds that rank's one device, and sums go over MPI's world. If this process is
alone in that world, as in a test, the functions act as Chainer's. ``all_reduced`` starts its own
ranks, for the self-test.
"""

from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from typing import Any

import chainer
import chainermn
import numpy as np
from chainer.backends import cuda

from helpers.frameworks import chainer as alone
from helpers.frameworks import chainermn_ranks, mpi_ranks
from helpers.frameworks.chainer import (
    KERNEL,
    NAME,
    Device,
    Model,
    completion,
    configure,
    dump_optimizer,
    dump_weights,
    exact,
    gradients,
    learning_rate,
    list_devices,
    load_optimizer,
    load_weights,
    logits,
    matrix_product,
    out_of_memory,
    shallow,
    synchronize,
    through_layer,
    train_forward,
    watch,
)

__all__ = [
    "KERNEL",
    "NAME",
    "Device",
    "DeviceLosses",
    "Model",
    "all_reduced",
    "completion",
    "configure",
    "dump_optimizer",
    "dump_weights",
    "exact",
    "gradients",
    "learning_rate",
    "list_devices",
    "load_optimizer",
    "load_weights",
    "logits",
    "matrix_product",
    "out_of_memory",
    "shallow",
    "skip",
    "slowest",
    "synchronize",
    "through_layer",
    "train_forward",
    "versions",
    "watch",
]

OWN_PARAMETERS = {"all_reduce": chainermn_ranks.check_all_reduce}
"""Additional parameters of this notebook, each with the function that refuses a wrong value. The
function receives the value, whether devices are GPUs, and their number."""

# What ChainerMN cannot do, and why.
SKIPPED = {
    **alone.SKIPPED,
    "overlapped communication": (
        "the multi-node optimiser reduces the gradients after the whole backward pass; its double "
        "buffering would overlap that, with the gradients of the step before"
    ),
}
del SKIPPED["training loss of all devices on GPUs"]  # here each rank has its own, and adds it


def versions() -> dict[str, str]:
    """Versions of the framework and of the libraries its speed depends on."""
    mpi = " ".join(_mpi().Get_library_version().split()[:3]).replace("Version: ", "")
    return alone.versions() | {"mpi": mpi, "mpi4py": version("mpi4py")}


def all_reduced(shares: Sequence[np.ndarray], devices: Sequence[Device]) -> list[np.ndarray]:
    """What each device has after an all-reduce, done as the notebook does it.

    By the communicator, in ranks of their own; of its mean the sum is made again.

    Args:
        shares: one float32 array (N,) per device.
        devices: handles from :func:`list_devices`.

    Returns:
        One float32 array (N,) per device: the sum of the shares.
    """
    return mpi_ranks.call("ChainerMN", partial(_reduced, shares), devices)


class DeviceLosses(alone.DeviceLosses):
    """Sums losses where they are computed; the host reads them once per epoch."""

    def _total(self) -> np.ndarray:
        """Of all ranks."""
        total: np.ndarray = _mpi().COMM_WORLD.allreduce(super()._total())
        return total


def slowest(seconds: float, devices: Sequence[Device]) -> float:
    """The longest time that any replica's process measured.

    Args:
        seconds: what this process measured.
        devices: handles from :func:`list_devices`.

    Returns:
        Seconds.
    """
    longest: float = _mpi().COMM_WORLD.allreduce(seconds, _mpi().MAX)
    return longest


def skip(capability: str) -> str | None:
    """Why the framework cannot do something; None if it can.

    Args:
        capability: its name, as in ``SKIPPED``.
    """
    return SKIPPED.get(capability)


def _mpi() -> Any:
    """The module that joins MPI when it is imported, which the server of forked processes, where
    this module may be imported, must not do."""
    from mpi4py import MPI

    return MPI


def _communicator(device: Device) -> Any:
    """As the notebook makes it, for the rank whose device this is."""
    device.use()
    return chainermn.create_communicator("naive" if device.name == "@numpy" else "pure_nccl")


def _mean_gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, device: Device
) -> tuple[float, dict[str, np.ndarray]]:
    """The mean loss and its gradients by the multi-node optimiser, in each rank."""
    dtype = alone._dtype(model)
    with chainer.using_config("dtype", dtype), chainer.using_config("train", False):
        communicator = _communicator(device)
        rank, ranks = communicator.rank, communicator.size
        share = alone._MeanLoss(model, targets.size / ranks)  # the mean over ranks is divided again
        share.to_device(device)
        pixels = device.send(images[rank::ranks].astype(dtype))
        optimizer = chainermn.create_multi_node_optimizer(
            chainer.optimizers.SGD(lr=0).setup(share), communicator
        )
        optimizer.update()  # the first one only sends rank 0's weights
        optimizer.update(share, pixels, device.send(targets[rank::ranks].astype(np.int32)))
    loss = communicator.allreduce_obj(float(share.loss.array)) / ranks
    return loss, {
        name: cuda.to_cpu(parameter.grad)
        for name, parameter in alone._parameters(model)
        if parameter.grad is not None
    }


def _reduced(shares: Sequence[np.ndarray], device: Device) -> np.ndarray:
    """One rank's part of :func:`all_reduced`."""
    communicator = _communicator(device)
    share = device.send(shares[communicator.rank])
    link = chainer.Link(weight=share.shape)
    link.to_device(device)
    link.weight.grad = share
    communicator.multi_node_mean_grad(link)
    return cuda.to_cpu(link.weight.grad) * np.float32(communicator.size)
