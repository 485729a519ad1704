"""The framework-specific helper functions for ChainerMN: Chainer's, extended to all ranks."""

from collections.abc import Callable, Sequence
from importlib.metadata import version

import chainer
import chainermn
import numpy as np
from chainer.backends import cuda

from helpers.frameworks import chainer as alone
from helpers.frameworks.chainer import *
from helpers.frameworks.chainer import _dtype_of, _MeanLoss, _trained


def versions() -> dict[str, str]:
    from mpi4py import MPI  # joins MPI, which the server of forked processes must not do

    mpi = " ".join(MPI.Get_library_version().split()[:3]).replace("Version: ", "")
    return alone.versions() | {"mpi": mpi, "mpi4py": version("mpi4py")}


def rank_gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    """The means over all ranks, which the multi-node optimiser hands to the one in it."""
    dtype, device = _dtype_of(model), devices[0]
    with chainer.using_config("dtype", dtype), chainer.using_config("train", False):
        device.use()
        kind = "naive" if device.name == "@numpy" else "pure_nccl"  # as in the notebook
        communicator = chainermn.create_communicator(kind)
        rank, ranks = communicator.rank, communicator.size
        share = _MeanLoss(model, targets.size / ranks)  # the mean over ranks is divided again
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
        for name, parameter in _trained(model)
        if parameter.grad is not None
    }


def apart(function: Callable[[], Found], devices: Sequence[Device]) -> Found:
    """Nothing is forked after a rank has started, so it may start its GPU."""
    return function()


def slowest(seconds: float, devices: Sequence[Device]) -> float:
    from mpi4py import MPI

    longest: float = MPI.COMM_WORLD.allreduce(seconds, MPI.MAX)
    return longest
