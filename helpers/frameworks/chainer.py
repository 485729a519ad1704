"""The framework-specific helper functions for Chainer.

Peculiar to Chainer: one process holds all devices of ParallelUpdater, which **sums** their
gradients instead of averaging them, so every loss here is divided by the whole batch and not by
the device's share. Arrays have torchvision's layout already (OIHW, and output by input in the
classifier); only the names of parameters differ, so a link's path in the model must be
torchvision's. BatchNorm counts nothing like ``num_batches_tracked``, and its ``avg_var`` is the
unbiased variance, as PyTorch's is. On CPUs the same seed gives the same bits, measured on one
and two devices; on GPUs it does not unless one asks for it (``SKIPPED``).
"""

import math
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any, TypeAlias

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer.backends import cuda
from threadpoolctl import threadpool_info

from helpers.errors import UnsupportedError
from helpers.frameworks import capabilities, memory, precisions, replicas, weight_layout
from helpers.frameworks.interface import Seen, Watch
from helpers.networks import custom
from helpers.recipe import RECIPES

NAME = "Chainer"
KERNEL = "chainer"

Device: TypeAlias = chainer.backend.Device
Model: TypeAlias = chainer.Chain

# Chainer makes the class of its links' classes inside a function, where cloudpickle cannot find it
# by name; given a name that can be imported, a notebook's Chain can be sent to another process.
_LinkMeta: Any = type(chainer.Link)
_LinkMeta.__module__, _LinkMeta.__qualname__ = __name__, "_LinkMeta"
_LinkMeta.__name__ = "_LinkMeta"

# What a link calls its arrays, and what torchvision calls them.
_NAMES = {
    "W": "weight",
    "b": "bias",
    "gamma": "weight",
    "beta": "bias",
    "avg_mean": "running_mean",
    "avg_var": "running_var",
}

# What Chainer's Adam calls its moments, and what a checkpoint does.
_MOMENTS = {"m": "first", "v": "second"}  # Adam's; MomentumSGD's v is its velocity
_VELOCITY = {"v": "first"}

WORKSPACE = 512 * 2**20
"""Bytes a convolution of cuDNN may take for its work. CuPy's 8 MiB rule out most algorithms; more
than this would be missing for the batch on a GPU of 16 GB (one block of it stays in the pool)."""

# What Chainer cannot do, and why.
SKIPPED = {
    **precisions.ON_GPUS_ONLY,
    "replicas that share one, on GPUs": capabilities.CANNOT_SHARE["chainer"],
    "bf16": "Chainer has no bfloat16",
    "fp16": (
        "Chainer's mixed16 stores the weights in float16, where the others round only products"
    ),
    "overlapped communication": "its updaters reduce the gradients after the whole backward pass",
    "training loss of all devices on GPUs": (
        "MultiprocessParallelUpdater keeps the other processes' losses"
    ),
    "the same bits from the same seed on GPUs": (
        "by Chainer's documentation of its configuration, cuDNN's convolutions are reproducible "
        "only with chainer.config.cudnn_deterministic, which is not set"
    ),
    "pretrained DenseNet121": "Chainer and chainercv publish none; torchvision's file is converted",
}


def versions() -> dict[str, str]:
    found = {name: version(name) for name in ("chainer", "chainercv", "numpy")}
    if cuda.available:
        found["cupy"] = cuda.cupy.__version__
        found["cuda"] = str(cuda.cupy.cuda.runtime.runtimeGetVersion())
        if cuda.cudnn_enabled:
            found["cudnn"] = str(cuda.cupy.cuda.cudnn.getVersion())
        nccl = getattr(cuda.cupy.cuda, "nccl", None)
        if nccl is not None and getattr(nccl, "available", True):
            found["nccl"] = str(nccl.get_version())
    return found


def list_devices(kind: str, count: int, gpus: int | None = None) -> list[Device]:
    """Naming a GPU does not start CUDA in this process, so processes can still be forked."""
    if why := capabilities.why_not_shared(KERNEL, count, gpus or 0):
        raise UnsupportedError(why)
    if kind == "gpu":
        return [chainer.get_device(f"@cupy:{index}") for index in range(count)]
    return [chainer.get_device("@numpy")] * count


def configure(precision: str, kind: str) -> None:
    """Nothing here starts CUDA.

    Its libraries may read their settings as early as ``import chainer``, so a notebook calls
    ``precisions.allow_tf32`` before that.
    """
    precisions.check(precision, kind, SKIPPED)
    precisions.allow_tf32(precision != "fp32")
    chainer.global_config.autotune = True  # cuDNN finds its fastest algorithm for each layer,
    cuda.set_max_workspace_size(WORKSPACE)  # of those that make do with so much memory
    if kind == "cpu":  # where NumPy's arrays come from the C library, each time anew
        memory.keep_freed()


def synchronize(devices: Sequence[Device]) -> None:
    for device in devices:
        if isinstance(device, cuda.GpuDevice):
            device.device.synchronize()


def completion(result: Any) -> Callable[[], None] | None:
    """The event is recorded on the device's current stream now."""
    if isinstance(result, np.ndarray):
        return None  # NumPy computes at once
    with chainer.using_device(chainer.backend.get_device_from_array(result)):
        event = cuda.cupy.cuda.Event(block=True)  # sleeps instead of keeping a core busy
        event.record()
    wait: Callable[[], None] = event.synchronize
    return wait


def load_weights(model: Model, weights: Mapping[str, np.ndarray]) -> None:
    arrays = dict(_arrays(model))
    wrong = sorted(arrays.keys() ^ weights.keys())
    wrong += [name for name in arrays.keys() & weights if arrays[name].shape != weights[name].shape]
    weight_layout.refuse(wrong)
    with chainer.using_device(model.device):
        for name, array in arrays.items():
            array[...] = model.xp.asarray(weights[name], dtype=array.dtype)


def dump_weights(model: Model) -> dict[str, np.ndarray]:
    return {name: cuda.to_cpu(array).copy() for name, array in _arrays(model)}


def load_optimizer(
    model: Model, optimizer: Any, state: Mapping[str, np.ndarray], scaler: Any = None
) -> None:
    """Chainer has no fp16 here, so there is no ``scaler``."""
    if not state:
        return
    optimizer.t, (moments, factor) = int(state["step"]), _kept(optimizer)
    for name, parameter in _parameters(model):
        rule = parameter.update_rule
        rule.t = optimizer.t
        with chainer.using_device(parameter.device):
            rule._state = {
                ours: parameter.xp.array(factor * state[f"{moment}/{name}"])
                for ours, moment in moments.items()
            }


def dump_optimizer(model: Model, optimizer: Any, scaler: Any = None) -> dict[str, np.ndarray]:
    moments, factor = _kept(optimizer)
    found = {
        f"{moment}/{name}": cuda.to_cpu(parameter.update_rule.state[ours]) / factor
        for name, parameter in _parameters(model)
        for ours, moment in moments.items()
    }
    return found | {"step": np.array(optimizer.t)}


def learning_rate(optimizer: Any) -> float:
    return float(optimizer.alpha if hasattr(optimizer, "alpha") else optimizer.lr)


def watch(replica: Any) -> Watch:
    optimizer, before = replica.optimizer, replica.optimizer.t

    def seen() -> Seen:
        kind = type(optimizer).__name__
        name = {"Adam": "adam", "MomentumSGD": "momentum", "SGD": "sgd"}.get(kind, kind)
        held = [each for _, each in _parameters(replica.network) if each.update_rule.enabled]
        rules = [each.update_rule for each in held]
        names = {"adam": {"beta 1": "beta1", "beta 2": "beta2"}}
        names["momentum"] = {"momentum": "momentum"}
        each = {
            what: [getattr(rule.hyperparam, theirs) for rule in rules]
            for what, theirs in names.get(name, {}).items()
        }
        hooks = optimizer._hookable._pre_update_hooks
        decay = sum(getattr(hook, "rate", 0.0) for hook in hooks.values())
        each["weight decay"] = [
            decay + sum(getattr(hook, "rate", 0.0) for hook in own.values())
            for own in (rule._hookable._pre_update_hooks for rule in rules)
        ]
        rate = "alpha" if hasattr(optimizer, "alpha") else "lr"
        factors = [
            getattr(rule.hyperparam, rate) / (getattr(optimizer, rate) or 1.0) for rule in rules
        ]
        if any(factor != 1 for factor in factors):
            each["rate factor"] = factors
        found = {what: (min(values), max(values)) for what, values in each.items() if values}
        if name == "adam":
            epsilon = optimizer.eps
            if "epsilon_like_pytorch" in hooks:  # it has the bias correction in it
                epsilon /= math.sqrt(1 - optimizer.beta2 ** max(optimizer.t, 1))
            found["epsilon"] = (epsilon, epsilon)
        return Seen(
            name,
            found,
            optimizer.t - before,
            str(_dtype(replica.network)),
            "eager",
            precisions.tf32_allowed(),
            max((pool["num_threads"] for pool in threadpool_info()), default=None),
            sum(each.size for each in held),
            rate_in_velocity=True,
        )

    return Watch(partial(learning_rate, replica.optimizer), seen)


def exact(
    build_model: Callable[[Mapping[str, np.ndarray]], Model], weights: Mapping[str, np.ndarray]
) -> Model:
    with chainer.using_config("dtype", np.float64):
        return build_model(weights)


def shallow(weights: Mapping[str, np.ndarray], devices: Sequence[Device]) -> Model:
    with chainer.using_config("dtype", weights["classifier.bias"].dtype):
        model = _Shallow()
    load_weights(model, weights)
    return model


def logits(model: Model, images: np.ndarray) -> np.ndarray:
    with (
        chainer.using_config("train", False),
        chainer.no_backprop_mode(),
        chainer.using_device(model.device),
    ):
        batch = model.xp.asarray(images, dtype=_dtype(model))
        return cuda.to_cpu(model(batch).array)


def train_forward(model: Model, images: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    trained = model.copy(mode="copy")
    with chainer.no_backprop_mode(), chainer.using_device(model.device):  # training is the default
        found = trained(model.xp.asarray(images, dtype=_dtype(model)))
    return cuda.to_cpu(found.array), dump_weights(trained)


def gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    """What ParallelUpdater hands to its optimiser: device ``i`` of ``n`` takes every n-th
    image from the i-th on, and the gradients are summed.
    """
    dtype = _dtype(model)
    batch = list(zip(images.astype(dtype), targets.astype(np.int32), strict=True))
    replicas = [_MeanLoss(model, targets.size)]
    replicas += [replicas[0].copy(mode="copy") for _ in devices[1:]]
    names = ["main", *(f"device {position}" for position in range(1, len(devices)))]
    for replica, device in zip(replicas, devices, strict=True):
        replica.to_device(device)
    optimizer = chainer.optimizers.SGD(lr=0).setup(replicas[0])  # a step of zero leaves the model
    updater = chainer.training.ParallelUpdater(
        chainer.iterators.SerialIterator(batch, len(batch), shuffle=False),
        optimizer,
        models=dict(zip(names, replicas, strict=True)),
        devices=dict(zip(names, devices, strict=True)),
    )
    with chainer.using_config("train", False):
        updater.update()
    total = sum(float(replica.loss.array) for replica in replicas)
    return total, {
        name: cuda.to_cpu(parameter.grad).copy()
        for name, parameter in _parameters(model)
        if parameter.grad is not None
    }


def through_layer(
    layer: str, arrays: Mapping[str, np.ndarray], device: Device
) -> dict[str, np.ndarray]:
    with chainer.using_device(device):
        given = {name: chainer.Variable(device.send(array)) for name, array in arrays.items()}
        images = given["images"]
        if layer == "convolution":
            output = F.convolution_2d(images, given["weight"], pad=1)
        elif layer == "BatchNorm":
            epsilon = RECIPES["chexnet"].bn_epsilon
            output = F.batch_normalization(images, given["scale"], given["offset"], eps=epsilon)
        else:
            output = F.average_pooling_2d(F.max_pooling_2d(images, 3, 2, cover_all=False), 2)
        output.grad = given.pop("gradient").array
        output.backward()
        found = {"output": output.array, **{name: each.grad for name, each in given.items()}}
        return {name: cuda.to_cpu(array) for name, array in found.items()}


def matrix_product(size: int, dtype: str, device: Device) -> Callable[[], None]:
    with chainer.using_device(device):
        row = device.xp.linspace(-1, 1, size, dtype=dtype)
        matrix = device.xp.outer(row, row)

    def multiply() -> None:
        with chainer.using_device(device):
            device.xp.matmul(matrix, matrix)
        synchronize([device])

    return multiply


def all_reduced(shares: Sequence[np.ndarray], devices: Sequence[Device]) -> list[np.ndarray]:
    """ParallelUpdater between CPUs; between GPUs the updater that forks a process for each and uses
    NCCL, in a process where CUDA has not been started.
    """
    if devices[0].name == "@numpy":
        return _reduced(0, shares, devices)
    found: list[np.ndarray] = replicas.run(_reduced, 1, shares, devices)[0]
    return found


class DeviceLosses:
    def __init__(self, devices: Sequence[Device]) -> None:
        # Filled at the first loss: to make an array on a GPU now would start CUDA too early.
        self._sums: list[Any] = [None] * len(devices)

    def add(self, position: int, loss: Any, images: int) -> None:
        array = getattr(loss, "array", loss)
        total = self._sums[position]
        device = chainer.backend.get_device_from_array(array)
        with chainer.using_device(device):
            if total is None:
                total = self._sums[position] = device.xp.zeros(2, dtype=np.float64)
            total[0] += array.astype(np.float64) * images
            total[1] += images

    def mean(self) -> float:
        total = self._total()
        return float(total[0] / total[1])

    def _total(self) -> np.ndarray:
        """This process's sum of losses times images, and its images."""
        none = np.zeros(2)  # of a process that had no batch
        return sum((cuda.to_cpu(part) for part in self._sums if part is not None), none)


def slowest(seconds: float, devices: Sequence[Device]) -> float:
    """The first process's: those of MultiprocessParallelUpdater do not share theirs."""
    return seconds


def _kept(optimizer: Any) -> tuple[dict[str, str], float]:
    """What the optimiser keeps for each weight, its names and a checkpoint's, and times what.

    Chainer multiplies momentum's velocity by minus the rate, which PyTorch keeps apart.
    """
    if isinstance(optimizer, chainer.optimizers.Adam):
        return _MOMENTS, 1.0
    momentum = isinstance(optimizer, chainer.optimizers.MomentumSGD)
    return (_VELOCITY if momentum else {}), -learning_rate(optimizer)


class _Sum(chainer.Chain):
    """A weight for each number of a share, whose gradient is that share.

    Before each step it notes in ``seen``, a row a device, what the weights are on its device.
    """

    def __init__(self, seen: np.ndarray) -> None:
        super().__init__()
        self.seen = seen
        with self.init_scope():
            self.weight = chainer.Parameter(np.zeros_like(seen[0]))

    def forward(self, number: int, share: Any) -> chainer.Variable:
        self.seen[number] = cuda.to_cpu(self.weight.array)
        return F.sum(self.weight * share)


def _reduced(
    rank: int, shares: Sequence[np.ndarray], devices: Sequence[Device]
) -> list[np.ndarray]:
    """What each device has after a step of SGD down the sum of ``shares``, with its sign turned.

    Seen when the next step begins, in whichever process, through memory that all of them share.
    """
    numbers = range(len(devices))
    memory = multiprocessing.RawArray("f", sum(map(len, shares)))
    seen = np.frombuffer(memory, np.float32).reshape(len(shares), -1)
    models = [_Sum(seen) for _ in devices]
    optimizer = chainer.optimizers.SGD().setup(models[0])

    def whole_rate(rule: Any) -> None:  # the updater for GPUs divides it by their number
        rule.lr = 1.0

    def sent(batch: Sequence[int], device: Device) -> tuple[int, Any]:
        (number,) = batch
        return number, device.send(shares[number])

    optimizer.add_hook(whole_rate)
    if devices[0].name == "@numpy":
        names = ["main", *(f"device {number}" for number in numbers[1:])]
        updater = chainer.training.ParallelUpdater(
            chainer.iterators.SerialIterator(numbers, len(numbers), shuffle=False),
            optimizer,
            converter=sent,
            models=dict(zip(names, models, strict=True)),
            devices=dict(zip(names, devices, strict=True)),
        )
    else:
        updater = chainer.training.updaters.MultiprocessParallelUpdater(
            [chainer.iterators.SerialIterator([number], 1, shuffle=False) for number in numbers],
            optimizer,
            converter=sent,
            devices=devices,
        )
        updater.setup_workers()  # forks, which must come before CUDA starts in this process
        replicas.end_with(updater._workers)  # NCCL would wait for a dead one for ever
    for _ in range(2):
        updater.update()
    updater.finalize()
    return [-row for row in seen]


class _Shallow(chainer.Chain):
    def __init__(self) -> None:
        super().__init__()
        recipe = RECIPES["chexnet"]
        features = chainer.Chain()
        with features.init_scope():
            features.conv0 = L.Convolution2D(3, 64, 7, stride=2, pad=3, nobias=True)
            features.norm0 = L.BatchNormalization(
                64, eps=recipe.bn_epsilon, decay=1 - recipe.bn_momentum
            )
        with self.init_scope():
            self.features, self.classifier = features, L.Linear(64, 14)

    def forward(self, images: Any) -> chainer.Variable:
        x = self.features.norm0(self.features.conv0(images))
        return self.classifier(F.mean(F.relu(x), axis=(2, 3)))


class _MeanLoss(chainer.Chain):
    """A model with its share of the mean over ``count`` labels, kept for the host to read."""

    def __init__(self, model: Model, count: int) -> None:
        super().__init__()
        self.count = count
        with self.init_scope():
            self.model = model

    def forward(self, images: Any, targets: Any) -> chainer.Variable:
        losses = F.sigmoid_cross_entropy(self.model(images), targets, reduce="no")
        self.loss = F.sum(losses) / self.count
        return self.loss


def _arrays(model: Model) -> Iterator[tuple[str, Any]]:
    """Canonical name and array of every parameter and running statistic.

    A custom network keeps Chainer's names, ``conv1/W``, and all arrays that its links hold.
    """
    if custom.is_own(model):
        for path, link in model.namedlinks():
            for name in sorted({*link._params, *link._persistent}):
                value = getattr(link, name)
                array = value.array if isinstance(value, chainer.Parameter) else value
                if isinstance(array, chainer.get_array_types()):
                    yield f"{path}/{name}".lstrip("/"), array
        return
    for path, link in model.namedlinks(skipself=True):
        for ours, theirs in _NAMES.items():
            value = getattr(link, ours, None)
            if value is not None:
                array = value.array if isinstance(value, chainer.Parameter) else value
                yield f"{path[1:].replace('/', '.')}.{theirs}", array


def _parameters(model: Model) -> Iterator[tuple[str, chainer.Parameter]]:
    """Canonical name and parameter of everything that is trained."""
    for path, parameter in model.namedparams():
        if custom.is_own(model):
            yield path[1:], parameter
            continue
        link, _, name = path[1:].rpartition("/")
        yield f"{link.replace('/', '.')}.{_NAMES[name]}", parameter


def _dtype(model: Model) -> np.dtype:
    """The type the model computes in."""
    return next(model.params()).dtype
