"""The framework-specific helper functions for PyTorch.

With DistributedDataParallel each device has a process of its own, so ``devices`` holds one device.
"""

import copy
import os
import socket
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
import torchvision
from torch.nn.parallel import DistributedDataParallel

from helpers.frameworks import libraries, replicas, weight_layout
from helpers.frameworks.interface import BuildModel, Seen, Watch, rule_of
from helpers.networks import custom
from helpers.networks import pytorch as networks
from helpers.networks.weights import under
from helpers.recipe import RECIPES

Device: TypeAlias = torch.device
Model: TypeAlias = torch.nn.Module

SKIPPED: Mapping[str, str] = {}


def versions() -> dict[str, str]:
    own = {"torch": torch.__version__, "torchvision": torchvision.__version__}
    return own | libraries.nvidia()


def list_devices(kind: str, count: int) -> list[Device]:
    if kind == "gpu":
        return [torch.device("cuda", index) for index in range(count)]
    return [torch.device("cpu")] * count


def configure(precision: str, kind: str) -> None:
    libraries.check_precision(precision, kind, SKIPPED)
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
    updates, types, rates = [0], set(), deque[float](maxlen=1)

    def count(optimizer: Any, *given: Any) -> None:
        updates[0] += 1
        rates.append(float(optimizer.param_groups[0]["lr"]))

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
        found = {
            what: [float(group[theirs] or 0) for group in groups]
            for what, theirs in _CONSTANTS.items()
            if theirs in groups[0]
        }
        if "betas" in groups[0]:
            found |= {f"beta {i + 1}": [group["betas"][i] for group in groups] for i in range(2)}
        first = groups[0]["lr"]
        found["rate factor"] = [group["lr"] / first if first else 1.0 for group in groups]
        held = [each for group in groups for each in group["params"] if each.requires_grad]
        return Seen(
            rule_of(replica.optimizer, groups[0].get("momentum")),
            found,
            "/".join(sorted(types)) or None,
            "compiled (torch.compile)" if compiled else "eager",
            torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32,
            torch.get_num_threads(),
            sum(each.numel() for each in held),
        )

    *_, (_, last) = _trained(replica.network)
    return Watch(
        lambda: rates.pop() if rates else None,
        lambda: updates[0],
        seen,
        lambda: [last.detach().float().cpu().numpy()],
    )


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


def slowest(seconds: float, devices: Sequence[Device]) -> float:
    if not dist.is_initialized():
        return seconds
    longest = torch.tensor(seconds, dtype=torch.float64, device=devices[0])
    dist.all_reduce(longest, dist.ReduceOp.MAX)
    return longest.item()


COUNTER = "num_batches_tracked"
"""BatchNorm's count of its steps, which is not a weight."""
_UNUSED = ("amsgrad", "maximize", "nesterov", "dampening", "decoupled_weight_decay")
"""Options of PyTorch's optimisers that no recipe uses."""
_CONSTANTS = {"weight decay": "weight_decay", "momentum": "momentum", "epsilon": "eps"}
_CONSTANTS |= {name: name for name in _UNUSED}


def load_weights(model: Model, weights: Mapping[str, np.ndarray]) -> None:
    state = {name: torch.from_numpy(np.array(array)) for name, array in weights.items()}
    missing, odd = model.load_state_dict(state, strict=False)
    weight_layout.refuse(odd + [name for name in missing if not name.endswith(COUNTER)])


def dump_weights(model: Model) -> dict[str, np.ndarray]:
    return {
        name: tensor.detach().cpu().numpy().copy()
        for name, tensor in model.state_dict().items()
        if not name.endswith(COUNTER)
    }


def load_optimizer(replica: Any, state: Mapping[str, np.ndarray], step: int) -> None:
    if "scale" in state and replica.scaler.is_enabled():
        scaler = replica.scaler
        scaler.load_state_dict(scaler.state_dict() | {"scale": float(state["scale"])})
    on_device = replica.optimizer.param_groups[0]["fused"]
    for name, parameter in _trained(replica.network):
        kept = {what: torch.tensor(array) for what, array in under(f"{name}/", state).items()}
        for what, tensor in kept.items():
            if tensor.ndim:  # laid out in memory as the weight
                kept[what] = torch.empty_like(parameter).copy_(tensor)
            elif on_device:  # the steps
                kept[what] = tensor.to(parameter.device)
        replica.optimizer.state[parameter] = kept
    schedule = replica.schedule
    schedule.last_epoch = step
    groups = schedule.optimizer.param_groups
    for group, rate, factor in zip(groups, schedule.base_lrs, schedule.lr_lambdas, strict=True):
        group["lr"] = rate * factor(step)


def dump_optimizer(replica: Any) -> dict[str, np.ndarray]:
    scaler = getattr(replica, "scaler", None)
    found = {} if scaler is None else {"scale": np.array(scaler.get_scale())}
    for name, parameter in _trained(replica.network):
        for what, tensor in replica.optimizer.state[parameter].items():
            found[f"{name}/{what}"] = tensor.cpu().numpy().copy()
    return found


def state_of(model: Model, weights: Mapping[str, np.ndarray]) -> Any:
    """A state dict; counters of BatchNorm's batches are the model's own."""
    recipe = RECIPES["chexnet"]
    for layer in model.modules():
        if isinstance(layer, torch.nn.BatchNorm2d) and not custom.is_own(model):
            layer.eps, layer.momentum = recipe.bn_epsilon, recipe.bn_momentum
    found = {name: torch.from_numpy(np.array(array)) for name, array in weights.items()}
    return model.state_dict() | found


def _trained(model: Model) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """The weights that an optimiser changes; a custom network may have frozen ones."""
    return ((name, each) for name, each in model.named_parameters() if each.requires_grad)


def exact(build_model: BuildModel, weights: Mapping[str, np.ndarray]) -> Model:
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
        dist.init_process_group(backend, rank=rank, world_size=len(devices))
        loss, found = rank_gradients(model, images, targets, [devices[rank]])
        dist.destroy_process_group()
        return loss, found if rank == 0 else {}

    with rendezvous() as environment:
        return replicas.run(replica, len(devices), environment=environment)[0]


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
    with first.register_forward_pre_hook(
        lambda layer, given: seen.append(given[0].float().cpu().numpy())
    ):
        yield seen


def _local_gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, device: Device
) -> tuple[float, dict[str, np.ndarray]]:
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
