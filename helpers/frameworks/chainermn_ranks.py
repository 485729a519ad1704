"""ChainerMN over several nodes: all that its processes need they have of ``mpiexec``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from helpers.frameworks.over_nodes import AllReduce
from helpers.frameworks.place import Place


def environment(here: Place) -> dict[str, str]:
    """Nothing but what every rank has."""
    return {}


def gradient_all_reduce(replica: Any, devices: Sequence[Any]) -> AllReduce:
    """The mean of all gradients by the communicator, as the multi-node optimiser asks for it.

    Args:
        replica: the lesson's.
        devices: this process's one.
    """
    import chainermn

    by = "naive" if devices[0].name == "@numpy" else "pure_nccl"
    communicator = chainermn.create_communicator(by)
    parameters = list(replica.network.params())
    for each in parameters:
        each.grad = each.xp.zeros(each.shape, each.dtype)

    def once() -> Any:
        communicator.multi_node_mean_grad(replica.network)
        return parameters[0].grad

    return AllReduce(once, sum(each.grad.nbytes for each in parameters), by)
