"""The framework-specific helper functions for PyTorch.

Specific to PyTorch: with DistributedDataParallel each device has a process of its own, so the
functions here are called inside a replica and ``devices`` holds that replica's one device;
sums over replicas are all-reduced.
"""

import os
import socket
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torchvision

from helpers.frameworks import library_versions, precisions
from helpers.frameworks.interface import Seen, Watch
from helpers.frameworks.pytorch_checks import *
from helpers.frameworks.pytorch_state import *

NAME = "PyTorch"
KERNEL = "pytorch"

# What PyTorch cannot do, and why.
SKIPPED = {
    **precisions.ON_GPUS_ONLY,
    "the same bits from the same seed on GPUs": (
        "cuDNN's benchmark mode, which is on, may pick other algorithms in another run"
    ),
}


def versions() -> dict[str, str]:
    own = {"torch": torch.__version__, "torchvision": torchvision.__version__}
    return own | library_versions.nvidia()


def list_devices(kind: str, count: int) -> list[Device]:
    if kind == "gpu":
        return [torch.device("cuda", index) for index in range(count)]
    return [torch.device("cpu")] * count


def configure(precision: str, kind: str) -> None:
    precisions.check(precision, kind, SKIPPED)
    # The name that replaces it is unknown to the version that older drivers need.
    warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
    torch.backends.cudnn.benchmark = True  # finds the fastest algorithm for each layer's sizes
    # By default PyTorch rounds convolutions on a GPU to TF32, but not matrix products.
    torch.backends.cudnn.allow_tf32 = precision != "fp32"
    torch.backends.cuda.matmul.allow_tf32 = precision != "fp32"


def synchronize(devices: Sequence[Device]) -> None:
    for device in devices:
        if device.type == "cuda":
            torch.cuda.synchronize(device)


def queued(device: Device) -> Callable[[], None] | None:
    """The event is recorded on the device's current stream now."""
    if device.type == "cpu":
        return None
    event = torch.cuda.Event(blocking=True)  # sleeps instead of keeping a core busy
    event.record(torch.cuda.current_stream(device))
    wait: Callable[[], None] = event.synchronize
    return wait


def watch(replica: Any) -> Watch:
    """A step that fp16 leaves out has no rate: None."""
    rates: list[float] = []
    updates, types = [0], set()

    def count(optimizer: Any, *given: Any) -> None:
        updates[0] += 1
        rates.append(float(optimizer.param_groups[0]["lr"]))

    def rate() -> float | None:
        found = rates[-1] if rates else None
        rates.clear()
        return found

    def note(layer: torch.nn.Module, given: Any, output: torch.Tensor) -> None:
        if layer.training:
            types.add(str(output.dtype).removeprefix("torch."))

    replica.optimizer.register_step_post_hook(count)
    compiled = replica.network._compiled_call_impl is not None
    layers = (each for each in replica.network.modules() if isinstance(each, torch.nn.Conv2d))
    layer = None if compiled else next(layers, None)
    noting = None if layer is None else layer.register_forward_hook(note)

    def seen() -> Seen:
        if noting is not None:
            noting.remove()
        groups = replica.optimizer.param_groups
        kind = type(replica.optimizer).__name__
        name = {"Adam": "adam", "SGD": "momentum" if groups[0].get("momentum") else "sgd"}
        found = {what: [float(group.get(what) or 0) for group in groups] for what in _UNUSED}
        found["weight decay"] = [group["weight_decay"] for group in groups]
        if kind == "Adam":
            found |= {f"beta {i + 1}": [group["betas"][i] for group in groups] for i in range(2)}
            found["epsilon"] = [group["eps"] for group in groups]
        elif groups[0].get("momentum"):
            found["momentum"] = [group["momentum"] for group in groups]
        first = groups[0]["lr"]
        found["rate factor"] = [group["lr"] / first if first else 1.0 for group in groups]
        held = [each for group in groups for each in group["params"] if each.requires_grad]
        return Seen(
            name.get(kind, kind),
            found,
            updates[0],
            "/".join(sorted(types)) or None,
            "compiled (torch.compile)" if compiled else "eager",
            torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32,
            torch.get_num_threads(),
            sum(each.numel() for each in held),
        )

    def held() -> list[np.ndarray]:
        last = [each for each in replica.network.parameters() if each.requires_grad][-1]
        return [last.detach().float().cpu().numpy()]

    return Watch(rate, lambda: updates[0], seen, held)


def make_current(device: Device, threads: int | None) -> None:
    if device.type == "cuda":
        torch.cuda.set_device(device)
    elif threads is not None:
        torch.set_num_threads(threads)


def free_memory(devices: Sequence[Device]) -> None:
    if any(device.type == "cuda" for device in devices):
        torch.cuda.empty_cache()


@contextmanager
def rendezvous() -> Iterator[dict[str, str]]:
    """A store in this process, as torchrun's agent has one; only this machine reaches it."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        host, port = listening.getsockname()
        store = dist.TCPStore(
            host,
            port,
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=os.dup(listening.fileno()),
        )
        yield {
            "MASTER_ADDR": host,
            "MASTER_PORT": str(port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": "0",
        }
        del store


def gather(value: Any) -> list[Any]:
    if not dist.is_initialized():
        return [value]
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def as_loaded(pixels: np.ndarray, targets: np.ndarray, numbers: np.ndarray) -> Any:
    return tuple(torch.from_numpy(part.copy()) for part in (pixels, targets, numbers))


def set_epoch(loader: Any, epoch: int) -> None:
    loader.batch_sampler.set_epoch(epoch)


def set_step(replica: Any, step: int) -> None:
    schedule = replica.schedule
    schedule.last_epoch = step
    for group, rate, factor in zip(
        schedule.optimizer.param_groups, schedule.base_lrs, schedule.lr_lambdas, strict=True
    ):
        group["lr"] = rate * factor(step)


def slowest(seconds: float, devices: Sequence[Device]) -> float:
    if not dist.is_initialized():
        return seconds
    longest = torch.tensor(seconds, dtype=torch.float64, device=devices[0])
    dist.all_reduce(longest, dist.ReduceOp.MAX)
    return longest.item()


_UNUSED = ("amsgrad", "maximize", "nesterov", "dampening", "decoupled_weight_decay")
"""Options of PyTorch's optimisers that no recipe uses."""
