"""All-reduce by the libraries that frameworks use, Gloo and NCCL, called through PyTorch.

MPI starts the ranks and exchanges their addresses; each library opens its own connections.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from helpers import network


def missing(name: str, ranks_a_host: int) -> str:
    """Why this Python cannot reduce by a library; "" if it can.

    Args:
        name: one of ``grids.LIBRARIES``.
        ranks_a_host: NCCL takes a GPU of its own for each.
    """
    if importlib.util.find_spec("torch") is None:
        return f"no torch in {sys.prefix}"
    import torch
    import torch.distributed as dist

    if name == "gloo":
        return "" if dist.is_gloo_available() else f"torch {torch.__version__} has no Gloo"
    gpus = torch.cuda.device_count() if dist.is_nccl_available() else 0
    if gpus < ranks_a_host:
        return f"{ranks_a_host} ranks need a GPU each, and there are {gpus}"
    return ""


@contextmanager
def joined(world: Any, names: Sequence[str]) -> Iterator[dict[str, Callable[[np.ndarray], Any]]]:
    """Connect all ranks by these libraries; all must ask for the same.

    Args:
        world: MPI's communicator of all ranks.
        names: of ``grids.LIBRARIES``; none: nothing is imported.

    Yields:
        Of each library what makes, of a contiguous array of float32, the function that sums it over
        all ranks: Gloo in place, NCCL in a copy on this rank's GPU.

    Raises:
        UserError: no network joins the hosts.
    """
    if not names:
        yield {}
        return
    import torch.distributed as dist

    host = socket.gethostname()
    of_ranks = world.allgather((host, network.addresses()))
    named = next((os.environ[name] for name in network.NAMED if os.environ.get(name)), "")
    found = network.common(dict(of_ranks), of_ranks[0][0], named)
    os.environ |= dict.fromkeys(network.NAMED, found[host][0])
    address, first = found[of_ranks[0][0]][1], world.rank == 0
    store = dist.TCPStore(address, 0, is_master=True, wait_for_workers=False) if first else None
    port = world.bcast(store.port if store else None)
    if store is None:
        store = dist.TCPStore(address, port, is_master=False, wait_for_workers=False)
    dist.init_process_group("gloo", store=store, rank=world.rank, world_size=world.size)
    try:
        gpu = sum(other == host for other, _ in of_ranks[: world.rank])
        group = dist.new_group(backend="nccl") if "nccl" in names else None
        makers: dict[str, Callable[[np.ndarray], Any]] = {
            "gloo": _gloo,
            "nccl": partial(_nccl, gpu=gpu, group=group),
        }
        yield {name: makers[name] for name in names}
    finally:
        dist.destroy_process_group()


def _gloo(array: np.ndarray) -> Callable[[], None]:
    import torch
    import torch.distributed as dist

    tensor = torch.from_numpy(array)
    return lambda: dist.all_reduce(tensor)


def _nccl(array: np.ndarray, *, gpu: int, group: Any) -> Callable[[], None]:
    import torch
    import torch.distributed as dist

    tensor = torch.from_numpy(array).to(f"cuda:{gpu}")

    def call() -> None:
        dist.all_reduce(tensor, group=group)
        torch.cuda.synchronize(gpu)

    return call
