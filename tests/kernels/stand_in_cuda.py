"""PyTorch's GPUs without any: CPU tensors in their place, and copies between them as CUDA's make.

``replicate``, ``scatter`` and ``parallel_apply`` are PyTorch's own; what they hand to CUDA is done
here. Broadcast, tensors travel as one long row, which is what loses their strides.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.nn.parallel import DistributedDataParallel, _functions
from torch.utils.data import DataLoader

from helpers.frameworks import replicas
from helpers.run import Run

Tensors = Sequence[torch.Tensor]


def broadcast(tensors: Tensors, devices: Sequence[Any], *rest: Any) -> list[list[torch.Tensor]]:
    """``torch._C._broadcast_coalesced``: for the first device the tensors themselves."""
    row = _flatten_dense_tensors(list(tensors))
    rows = [row.clone() for _ in devices[1:]]
    pieces = [_unflatten_dense_tensors(own, tensors) for own in rows]
    # Each with a version counter of its own, as it has it in C++.
    return [list(tensors), *([piece.data for piece in each] for each in pieces)]


class Broadcast(torch.autograd.Function):
    """PyTorch's, but for its refusal of CPU tensors."""

    @staticmethod
    def forward(ctx: Any, devices: Sequence[Any], *tensors: torch.Tensor) -> Any:
        ctx.devices = len(devices)
        found = _functions.comm.broadcast_coalesced(tensors, devices)
        return tuple(copy for copies in found for copy in copies)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        count = len(gradients) // ctx.devices
        shares = [gradients[at : at + count] for at in range(0, len(gradients), count)]
        return (None, *(torch.stack(each).sum(dim=0) for each in zip(*shares, strict=True)))


def scatter(tensor: torch.Tensor, devices: Sequence[Any], *rest: Any) -> tuple[torch.Tensor, ...]:
    return tuple(part.clone() for part in tensor.chunk(len(devices)))


class Stream:
    """A stream of a device that computes at once, so that nothing is ever waited for."""

    def __init__(self, *given: Any) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *given: Any) -> None:
        pass

    def wait_stream(self, other: "Stream") -> None:
        pass


def install(patch: pytest.MonkeyPatch) -> None:
    """For one process that drives all devices."""
    pinned(patch)
    modules = [sys.modules[f"torch.nn.parallel.{name}"] for name in ("replicate", "parallel_apply")]
    for module in (*modules, _functions):
        patch.setattr(module, "_get_device_index", lambda *given: 0)
    patch.setattr(_functions, "_get_stream", Stream)
    patch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)
    patch.setattr(_functions, "Broadcast", Broadcast)
    patch.setattr(_functions.comm, "broadcast_coalesced", broadcast)
    patch.setattr(_functions.comm, "scatter", scatter)
    accelerator = {
        "is_available": lambda: True,
        # The optimisers, who ask for one that is really there, compute on the CPU.
        "current_accelerator": lambda check_available=False: (
            None if check_available else torch.device("cpu")
        ),
        "current_stream": Stream,
        "device_index": lambda device: nullcontext(),
    }
    for name, value in accelerator.items():
        patch.setattr(torch.accelerator, name, value)


def pinned(patch: pytest.MonkeyPatch) -> None:
    """Loaders have to pin memory, which CUDA's driver does; here nothing is pinned."""
    init = DataLoader.__init__

    def unpinned(loader: Any, *given: Any, pin_memory: bool = False, **how: Any) -> None:
        assert pin_memory
        init(loader, *given, **how)

    patch.setattr(DataLoader, "__init__", unpinned)


@contextmanager
def one_replica() -> Iterator[None]:
    """For the process of one of them: CUDA's streams, NCCL, and DDP's own device."""
    begin, wrapped = dist.init_process_group, DistributedDataParallel.__init__
    to, own = torch.Tensor.to, torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    chosen: list[torch.device] = []
    choose = Run.device

    def init_process_group(backend: str, **how: Any) -> None:
        assert backend == "nccl"
        begin("gloo", **how)

    def init(self: Any, module: Any, device_ids: Any = None, **how: Any) -> None:
        assert device_ids is None or len(device_ids) == 1
        wrapped(self, module, **how)

    def device(run: Any, number: int) -> torch.device:
        """The replica chooses its GPU, and computes on the CPU."""
        assert choose(run, number) == own and set(chosen) == {own}
        run.own_devices = (torch.device("cpu"),)
        return torch.device("cpu")

    def sent(tensor: torch.Tensor, *given: Any, **how: Any) -> torch.Tensor:
        """Copied to the replica's own GPU, which it has chosen, or to the host."""
        if given and isinstance(given[0], torch.device) and given[0].type == "cuda":
            assert set(chosen) == {given[0]} == {own}
            return tensor.clone()
        return to(tensor, *given, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "init_process_group", init_process_group)
        patch.setattr(DistributedDataParallel, "__init__", init)
        patch.setattr(torch.cuda, "set_device", chosen.append)
        patch.setattr(Run, "device", device)
        pinned(patch)
        patch.setattr(torch.Tensor, "to", sent)
        patch.setattr(torch.cuda, "Stream", Stream)
        patch.setattr(torch.cuda, "current_stream", Stream)
        patch.setattr(torch.cuda, "stream", lambda stream: stream)
        patch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)
        yield


class OnGpus:
    """A replica's function in a process that has a GPU of its own."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    @property
    def __globals__(self) -> dict[str, Any]:  # what it imports is to be imported once
        return self.function.__globals__

    def __call__(self, *given: Any) -> Any:
        with one_replica():
            return self.function(*given)


_run = replicas.run


def run_on_gpus(function: Callable[..., Any], count: int, *given: Any, **how: Any) -> list[Any]:
    """``replicas.run`` on a machine with a GPU for each replica."""
    return _run(OnGpus(function), count, *given, **how)
