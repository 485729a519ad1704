"""The few framework-bound helpers, for PyTorch.

Peculiar to PyTorch: with DistributedDataParallel each device has a process of its own, so the
functions here are called inside a replica and ``devices`` holds that replica's one device;
sums over replicas are all-reduced. torchvision's layout is the canonical one, so weights need no
mapping; ``num_batches_tracked`` counts steps and is not a weight. On CPUs the same seed gives the
same bits, on one device with several threads and on two; on GPUs it need not, for cuDNN picks its
algorithms by their speed (:func:`configure`).
"""

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
import torchvision
from torch.nn.parallel import DistributedDataParallel

from helpers.frameworks import memory, precisions, replicas
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
    """Versions of the framework and the libraries its speed depends on."""
    found = {"torch": torch.__version__, "torchvision": torchvision.__version__}
    if torch.cuda.is_available():
        found |= {"cuda": str(torch.version.cuda), "cudnn": str(torch.backends.cudnn.version())}
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return found


def list_devices(kind: str, count: int, gpus: int | None = None) -> list[Device]:
    """The framework's handles for ``count`` devices of ``kind`` (``gpu`` or ``cpu``).

    ``gpus``: on how many they are, where they share them.
    """
    if kind == "gpu":
        return [torch.device("cuda", index % (gpus or count)) for index in range(count)]
    return [torch.device("cpu")] * count


def configure(precision: str, kind: str) -> None:
    """Set this process's switches: those of ``precision``, and for speed on devices of ``kind``.

    What is cast where stands in the notebook (``torch.autocast``).

    Raises:
        UnsupportedError: PyTorch cannot compute in it there.
    """
    precisions.check(precision, kind, SKIPPED)
    torch.backends.cudnn.benchmark = True  # finds the fastest algorithm for each layer's sizes
    # By default PyTorch rounds convolutions on a GPU to TF32, but not matrix products.
    torch.backends.cudnn.allow_tf32 = precision != "fp32"
    torch.backends.cuda.matmul.allow_tf32 = precision != "fp32"


def synchronize(devices: Sequence[Device]) -> None:
    """Return when the devices have finished all queued work; for timing only."""
    for device in devices:
        if device.type == "cuda":
            torch.cuda.synchronize(device)


def completion(result: Any) -> Callable[[], None] | None:
    """A call that returns when the device has computed ``result``; None where it has already.

    The event is made on the device's current stream now, so the call does not wait for later work.
    """
    if not result.is_cuda:
        return None
    event = torch.cuda.Event(blocking=True)  # sleeps instead of keeping a core busy
    event.record(torch.cuda.current_stream(result.device))
    wait: Callable[[], None] = event.synchronize
    return wait


def load_weights(model: Model, weights: Mapping[str, np.ndarray]) -> None:
    """Copy canonical weights (torchvision's names, OIHW) into ``model``."""
    state = {name: torch.from_numpy(np.array(array)) for name, array in weights.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    wrong = [name for name in missing if not name.endswith("num_batches_tracked")] + unexpected
    if wrong:
        raise ValueError(f"weights do not fit the model: {wrong[0]} (and {len(wrong) - 1} more)")


def dump_weights(model: Model) -> dict[str, np.ndarray]:
    """The model's weights in the canonical layout; the inverse of :func:`load_weights`."""
    return {
        name: tensor.detach().cpu().numpy().copy()
        for name, tensor in model.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }


def load_optimizer(
    model: Model, optimizer: Any, state: Mapping[str, np.ndarray], scaler: Any = None
) -> None:
    """Put Adam where :func:`dump_optimizer` found it; with an empty ``state`` nothing changes.

    ``scaler`` multiplies fp16's loss, where the optimiser does not do so itself.
    """
    if not state:
        return
    if scaler is not None and scaler.is_enabled():
        scaler.load_state_dict(scaler.state_dict() | {"scale": float(state["scale"])})
    fused = optimizer.param_groups[0]["fused"]
    for name, parameter in model.named_parameters():
        first, second = (
            torch.empty_like(parameter).copy_(torch.tensor(state[f"{moment}/{name}"]))
            for moment in ("first", "second")
        )
        step = torch.tensor(float(state["step"]), device=parameter.device if fused else None)
        optimizer.state[parameter] = {"step": step, "exp_avg": first, "exp_avg_sq": second}


def dump_optimizer(model: Model, optimizer: Any, scaler: Any = None) -> dict[str, np.ndarray]:
    """Adam's two moments of every weight, canonical as weights are, and the number of steps.

    With a ``scaler`` also the factor of fp16's loss.
    """
    found = {} if scaler is None else {"scale": np.array(scaler.get_scale())}
    for name, parameter in model.named_parameters():
        state = optimizer.state[parameter]
        found[f"first/{name}"] = state["exp_avg"].cpu().numpy().copy()
        found[f"second/{name}"] = state["exp_avg_sq"].cpu().numpy().copy()
        found["step"] = np.array(int(state["step"]))
    return found


def learning_rate(optimizer: Any) -> float:
    """The rate of the optimiser's last step."""
    return float(optimizer.param_groups[0]["lr"])


def exact(
    build_model: Callable[[Mapping[str, np.ndarray]], Model], weights: Mapping[str, np.ndarray]
) -> Model:
    """The model that ``build_model`` makes of canonical weights, computing in float64."""
    model = build_model(weights).double()
    load_weights(model, weights)
    return model


def shallow(weights: Mapping[str, np.ndarray], devices: Sequence[Device]) -> Model:
    """DenseNet121 without its dense blocks, in the weights' dtype: to try a training loop on.

    Convolution, BatchNorm, ReLU, mean over the pixels, classifier; ``weights.SHALLOW`` names
    its weights.
    """
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
    """Logits (N, 14) in evaluation mode for ``images`` (N, 3, H, W), normalised floats."""
    first = next(model.parameters())
    model.eval()
    with torch.no_grad():
        batch = torch.from_numpy(images).to(first.device, first.dtype)
        return model(batch).cpu().numpy()


def train_forward(model: Model, images: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Logits (N, 14) in training mode on one device, and the weights after it.

    Of those only BatchNorm's running statistics have changed; ``model`` itself is left as it was.
    """
    trained = copy.deepcopy(model).train()
    first = next(trained.parameters())
    with torch.no_grad():
        found = trained(torch.from_numpy(images).to(first.device, first.dtype))
    return found.cpu().numpy(), dump_weights(trained)


def gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    """Loss and gradients of the mean loss over (N, 14), by the canonical names.

    They are what DistributedDataParallel over ``devices`` hands to the optimiser. BatchNorm is
    frozen (running statistics), so that the split over devices cannot change the result: N
    devices must give what one gives.
    """
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
    """What ``layer`` makes of ``arrays`` on ``device``, forward and backward; for the probe.

    ``helpers.runner.probe.known`` says what each layer computes and what must come out: ``output``,
    and by its name the gradient of each array but ``gradient``, which flows back from the output.
    """
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


def all_reduced(shares: Sequence[np.ndarray], devices: Sequence[Device]) -> list[np.ndarray]:
    """What each device has after an all-reduce of ``shares``, float32 (N,), one a device.

    The way the notebook goes: a process for each device, NCCL between GPUs and Gloo between CPUs.
    """

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
    """Sums losses where they are computed; the host reads them once, at the end of an epoch."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self._sums = [torch.zeros(2, dtype=torch.float64, device=device) for device in devices]

    def add(self, position: int, loss: Any, images: int) -> None:
        """Add the mean ``loss`` over ``images`` images, a scalar on device number ``position``."""
        total = self._sums[position]
        total[0] += loss.detach() * images
        total[1] += images

    def mean(self) -> float:
        """Mean loss per image over all devices; waits for them."""
        total = self._sums[0].clone()
        for other in self._sums[1:]:
            total += other.to(total.device)
        if dist.is_initialized():
            dist.all_reduce(total)
        return float(total[0] / total[1])


def slowest(seconds: float, devices: Sequence[Device]) -> float:
    """The longest that any replica's process measured, of what all wait for."""
    if not dist.is_initialized():
        return seconds
    longest = torch.tensor(seconds, dtype=torch.float64, device=devices[0])
    dist.all_reduce(longest, dist.ReduceOp.MAX)
    return longest.item()


def out_of_memory(error: BaseException) -> bool:
    """Whether ``error``, maybe a replica's, says that memory ran out."""
    return isinstance(error, torch.OutOfMemoryError) or any(
        words in str(error)
        for words in ("OutOfMemoryError", "can't allocate memory", *memory.RAN_OUT)
    )


def skip(capability: str) -> str | None:
    """Why PyTorch cannot do ``capability``; None where it can."""
    return SKIPPED.get(capability)


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
