"""The framework-specific helper functions for PyTorch.

Peculiar to PyTorch: with DistributedDataParallel each device has a process of its own, so the
functions here are called inside a replica and ``devices`` holds that replica's one device;
sums over replicas are all-reduced. torchvision's layout is the canonical one, so weights need no
mapping; ``num_batches_tracked`` counts steps and is not a weight. On CPUs the same seed gives the
same bits, on one device with several threads and on two; on GPUs it need not, for cuDNN picks its
algorithms by their speed (:func:`configure`).
"""

import copy
import os
import socket
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
import torchvision
from torch.nn.parallel import DistributedDataParallel

from helpers.frameworks import precisions, replicas, weight_layout
from helpers.frameworks.interface import Seen, Watch
from helpers.networks import custom
from helpers.recipe import RECIPES

NAME = "PyTorch"
KERNEL = "pytorch"

Device: TypeAlias = torch.device
Model: TypeAlias = torch.nn.Module

# What PyTorch cannot do, and why.
SKIPPED = {
    **precisions.ON_GPUS_ONLY,
    "the same bits from the same seed on GPUs": (
        "cuDNN's benchmark mode, which is on, may pick other algorithms in another run, and some "
        "add in any order (PyTorch's documentation, Reproducibility)"
    ),
}


def versions() -> dict[str, str]:
    found = {"torch": torch.__version__, "torchvision": torchvision.__version__}
    if torch.cuda.is_available():
        found |= {"cuda": str(torch.version.cuda), "cudnn": str(torch.backends.cudnn.version())}
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return found


def list_devices(kind: str, count: int, gpus: int | None = None) -> list[Device]:
    if kind == "gpu":
        return [torch.device("cuda", index % (gpus or count)) for index in range(count)]
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


def completion(result: Any) -> Callable[[], None] | None:
    return queued(result.device)


def queued(device: Device) -> Callable[[], None] | None:
    """The event is recorded on the device's current stream now."""
    if device.type == "cpu":
        return None
    event = torch.cuda.Event(blocking=True)  # sleeps instead of keeping a core busy
    event.record(torch.cuda.current_stream(device))
    wait: Callable[[], None] = event.synchronize
    return wait


def load_weights(model: Model, weights: Mapping[str, np.ndarray]) -> None:
    state = {name: torch.from_numpy(np.array(array)) for name, array in weights.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    weight_layout.refuse(
        [name for name in missing if not name.endswith("num_batches_tracked")] + unexpected
    )


def dump_weights(model: Model) -> dict[str, np.ndarray]:
    return {
        name: tensor.detach().cpu().numpy().copy()
        for name, tensor in model.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }


def load_optimizer(
    model: Model, optimizer: Any, state: Mapping[str, np.ndarray], scaler: Any = None
) -> None:
    if not state:
        return
    if scaler is not None and scaler.is_enabled():
        scaler.load_state_dict(scaler.state_dict() | {"scale": float(state["scale"])})
    adam, fused = isinstance(optimizer, torch.optim.Adam), optimizer.param_groups[0]["fused"]
    for name, parameter in _trained(model):
        found = optimizer.state[parameter] = {
            theirs: torch.empty_like(parameter).copy_(torch.tensor(state[f"{moment}/{name}"]))
            for moment, theirs in _moments(optimizer).items()
        }
        if adam:
            device = parameter.device if fused else None
            found["step"] = torch.tensor(float(state["step"]), device=device)


def dump_optimizer(model: Model, optimizer: Any, scaler: Any = None) -> dict[str, np.ndarray]:
    found = {} if scaler is None else {"scale": np.array(scaler.get_scale())}
    for name, parameter in _trained(model):
        state = optimizer.state[parameter]
        for moment, theirs in _moments(optimizer).items():
            found[f"{moment}/{name}"] = state[theirs].cpu().numpy().copy()
        found["step"] = np.array(int(state.get("step", 0)))  # only Adam counts
    return found


def learning_rate(optimizer: Any) -> float:
    return float(optimizer.param_groups[0]["lr"])


def watch(replica: Any) -> Watch:
    """A step that fp16 leaves out has no rate: None."""
    rates: list[float] = []
    updates, types = [0], set()

    def count(optimizer: Any, *given: Any) -> None:
        updates[0] += 1
        rates.append(learning_rate(optimizer))

    def rate() -> float | None:
        found = rates[-1] if rates else None
        rates.clear()
        return found

    def note(layer: torch.nn.Module, given: Any, output: torch.Tensor) -> None:
        if layer.training:
            types.add(str(output.dtype).removeprefix("torch."))

    counting = replica.optimizer.register_step_post_hook(count)
    compiled = replica.network._compiled_call_impl is not None
    layers = (each for each in replica.network.modules() if isinstance(each, torch.nn.Conv2d))
    layer = None if compiled else next(layers, None)
    noting = None if layer is None else layer.register_forward_hook(note)

    def seen() -> Seen:
        counting.remove()
        if noting is not None:
            noting.remove()
        groups = replica.optimizer.param_groups
        kind = type(replica.optimizer).__name__
        name = {"Adam": "adam", "SGD": "momentum" if groups[0].get("momentum") else "sgd"}
        found = {"weight decay": [group["weight_decay"] for group in groups]}
        if kind == "Adam":
            found |= {f"beta {i + 1}": [group["betas"][i] for group in groups] for i in range(2)}
            found["epsilon"] = [group["eps"] for group in groups]
        elif groups[0].get("momentum"):
            found["momentum"] = [group["momentum"] for group in groups]
        factors = [group["lr"] / (groups[0]["lr"] or 1.0) for group in groups]
        if any(factor != 1 for factor in factors):
            found["rate factor"] = factors
        held = [each for group in groups for each in group["params"] if each.requires_grad]
        for what in _UNUSED:
            if any(group.get(what) for group in groups):  # a rule has none of these
                found[what] = [float(group.get(what) or 0) for group in groups]
        return Seen(
            name.get(kind, kind),
            {what: (min(values), max(values)) for what, values in found.items()},
            updates[0],
            "/".join(sorted(types)) or None,
            "compiled (torch.compile)" if compiled else "eager",
            torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32,
            torch.get_num_threads(),
            sum(each.numel() for each in held),
        )

    return Watch(rate, seen)


def make_current(device: Device, threads: int | None) -> None:
    if device.type == "cuda":
        torch.cuda.set_device(device)
    elif threads is not None:
        torch.set_num_threads(threads)


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


def state_of(model: Model, weights: Mapping[str, np.ndarray]) -> Any:
    """A state dict; counters of BatchNorm's batches are the model's own."""
    recipe = RECIPES["chexnet"]
    for layer in model.modules():
        if isinstance(layer, torch.nn.BatchNorm2d) and not custom.is_own(model):
            layer.eps, layer.momentum = recipe.bn_epsilon, recipe.bn_momentum
    found = {name: torch.from_numpy(np.array(array)) for name, array in weights.items()}
    counters = {
        name: each
        for name, each in model.state_dict().items()
        if name.endswith("num_batches_tracked")
    }
    return counters | found


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


def exact(
    build_model: Callable[[Mapping[str, np.ndarray]], Model], weights: Mapping[str, np.ndarray]
) -> Model:
    model = build_model(weights).double()
    load_weights(model, weights)
    return model


def shallow(weights: Mapping[str, np.ndarray], devices: Sequence[Device]) -> Model:
    recipe = RECIPES["chexnet"]
    features = torch.nn.Sequential()
    features.add_module("conv0", torch.nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False))
    norm = torch.nn.BatchNorm2d(64, recipe.bn_epsilon, recipe.bn_momentum)
    features.add_module("norm0", norm)
    model = torch.nn.Sequential()
    model.add_module("features", features)
    model.add_module("relu", torch.nn.ReLU())
    model.add_module("pool", torch.nn.AdaptiveAvgPool2d(1))
    model.add_module("flatten", torch.nn.Flatten())
    model.add_module("classifier", torch.nn.Linear(64, 14))
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
    shares = list(
        zip(
            np.array_split(images, len(devices)), np.array_split(targets, len(devices)), strict=True
        )
    )

    def replica(rank: int) -> tuple[float, dict[str, np.ndarray]]:
        _join(rank, devices)
        parallel = DistributedDataParallel(model.to(devices[rank]).eval())
        loss, found = _local_gradients(parallel, *shares[rank], devices[rank])
        dist.destroy_process_group()
        return loss, found if rank == 0 else {}

    results = replicas.run(replica, len(devices))
    return float(np.mean([loss for loss, _ in results])), results[0][1]


def through_layer(
    layer: str, arrays: Mapping[str, np.ndarray], device: Device
) -> dict[str, np.ndarray]:
    given = {}
    for name, array in arrays.items():
        tensor = torch.tensor(array, device=device)
        if tensor.dim() == 4:  # as the notebook lays out its network
            tensor = tensor.to(memory_format=torch.channels_last)
        given[name] = tensor.requires_grad_(name != "gradient")
    images = given["images"]
    if layer == "convolution":
        output = F.conv2d(images, given["weight"], padding=1)
    elif layer == "BatchNorm":
        epsilon = RECIPES["chexnet"].bn_epsilon
        output = F.batch_norm(
            images, None, None, given["scale"], given["offset"], training=True, eps=epsilon
        )
    else:
        output = F.avg_pool2d(F.max_pool2d(images, 3, stride=2), 2)
    output.backward(given.pop("gradient"))
    found = {"output": output.detach()}
    found |= {name: tensor.grad for name, tensor in given.items() if tensor.grad is not None}
    return {name: tensor.cpu().numpy() for name, tensor in found.items()}


def matrix_product(size: int, dtype: str, device: Device) -> Callable[[], None]:
    row = torch.linspace(-1, 1, size, device=device)
    matrix = torch.outer(row, row).to(getattr(torch, dtype))

    def multiply() -> None:
        torch.mm(matrix, matrix)
        synchronize([device])

    return multiply


def all_reduced(shares: Sequence[np.ndarray], devices: Sequence[Device]) -> list[np.ndarray]:
    """In one process per device, with NCCL between GPUs and Gloo between CPUs."""

    def replica(rank: int) -> np.ndarray:
        if devices[rank].type == "cuda":
            torch.cuda.set_device(devices[rank])
        _join(rank, devices)
        total = torch.tensor(shares[rank]).to(devices[rank])
        dist.all_reduce(total)
        found = total.cpu().numpy()
        dist.destroy_process_group()
        return found

    return replicas.run(replica, len(devices))


class DeviceLosses:
    def __init__(self, devices: Sequence[Device]) -> None:
        self._sums = [torch.zeros(2, dtype=torch.float64, device=device) for device in devices]

    def add(self, position: int, loss: Any, images: int) -> None:
        total = self._sums[position]
        total[0] += loss.detach() * images
        total[1] += images

    def mean(self) -> float:
        total = self._sums[0].clone()
        for other in self._sums[1:]:
            total += other.to(total.device)
        if dist.is_initialized():
            dist.all_reduce(total)
        return float(total[0] / total[1])


def slowest(seconds: float, devices: Sequence[Device]) -> float:
    if not dist.is_initialized():
        return seconds
    longest = torch.tensor(seconds, dtype=torch.float64, device=devices[0])
    dist.all_reduce(longest, dist.ReduceOp.MAX)
    return longest.item()


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


_UNUSED = ("amsgrad", "maximize", "nesterov", "dampening", "decoupled_weight_decay")
"""Options of PyTorch's optimisers that no recipe uses."""


def _trained(model: Model) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """The weights that an optimiser changes; a custom network may have frozen ones."""
    return ((name, each) for name, each in model.named_parameters() if each.requires_grad)


def _moments(optimizer: Any) -> dict[str, str]:
    """What the optimiser keeps for each weight: a checkpoint's names and its own."""
    if isinstance(optimizer, torch.optim.Adam):
        return {"first": "exp_avg", "second": "exp_avg_sq"}
    return {"first": "momentum_buffer"} if optimizer.param_groups[0]["momentum"] else {}


def _join(rank: int, devices: Sequence[Device]) -> None:
    """Let this replica's process join those of the other ``devices``.

    NCCL refuses two ranks on one GPU; Gloo sums on the host what is on GPUs.
    """
    apart = devices[0].type == "cuda" and len(set(devices)) == len(devices)
    dist.init_process_group(
        "nccl" if apart else "gloo",
        init_method=os.environ[replicas.RENDEZVOUS],
        rank=rank,
        world_size=len(devices),
    )


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
