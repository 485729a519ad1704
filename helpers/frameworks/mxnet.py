"""The framework-specific helper functions for MXNet Gluon.

Peculiar to Gluon: one process drives all devices of a node and a parameter has a copy on each of
them, so ``devices`` holds all devices here; how nodes are joined is in ``mxnet_ranks``. Arrays are
asynchronous on the CPU too: an operation returns at once and the engine computes behind it. Names
are Gluon's own, so weights are mapped by position: ``collect_params()`` walks a network in
torchvision's order, and both frameworks keep convolutions as OIHW and the dense layer as (outputs,
inputs). On CPUs the same seed gives the same bits, measured on one and two devices; on GPUs it does
not unless one asks for it (``SKIPPED``).
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import metadata
from typing import Any, TypeAlias

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

from helpers.errors import UnsupportedError
from helpers.frameworks import (
    capabilities,
    mxnet_ranks,
    precisions,
    rank_info,
    weight_layout,
)
from helpers.frameworks.interface import Seen, Watch
from helpers.networks import custom
from helpers.networks.shapes import names_by_count
from helpers.recipe import RECIPES

NAME = "MXNet Gluon"
KERNEL = "mxnet"

Device: TypeAlias = mx.Context
Model: TypeAlias = gluon.HybridBlock

# What Gluon cannot do, or does otherwise than the others, and why.
SKIPPED = {
    **precisions.ON_GPUS_ONLY,
    "replicas that share one, on GPUs": capabilities.CANNOT_SHARE["mxnet"],
    "bf16": (
        "contrib.amp has bfloat16 for CPUs only, and changes the operators of the whole process "
        "for good: the fairness check's network in float64 then fails"
    ),
    "fp16": (
        "contrib.amp has float16 for GPUs only, and its loss scaling makes Python wait for the "
        "devices in every step"
    ),
    "unbiased running variance on CPUs": (
        "on CPUs, Gluon's BatchNorm keeps the biased variance, (n-1)/n of PyTorch's, and cannot "
        "keep the unbiased one. n is images per device x height x width of the layer"
    ),
    "synchronised BatchNorm": "gluon.contrib's SyncBatchNorm hangs on two CPU contexts",
    "static shapes": (
        "hybridize(static_shape=True) spoils the running statistics of BatchNorm on two contexts"
    ),
    "the same bits from the same seed on GPUs": (
        "by MXNet's documentation of its environment variables, cuDNN's convolutions are "
        "deterministic only with MXNET_ENFORCE_DETERMINISM=1, which is not set"
    ),
    "Hopper GPUs and later": (
        "the last wheels, mxnet-cu117 1.9.1, hold machine code for sm_50 to sm_86 and no PTX"
    ),
}

SCRATCH = 512
"""Buffers that operations on CPUs compute in, for all devices together: ``MXNET_CPU_TEMP_COPY``.

The engine has an operation wait for each earlier one with the same buffer, and MXNet's own 4 let no
two devices train at the same time (docs/speed.md).
"""


def versions() -> dict[str, str]:
    found = {"mxnet": mx.__version__, "numpy": np.__version__}
    if mx.runtime.Features().is_enabled("CUDA"):
        for library in ("cuda-runtime", "cudnn", "nccl"):
            try:
                found[library.split("-")[0]] = metadata.version(f"nvidia-{library}-cu11")
            except metadata.PackageNotFoundError:
                continue  # MXNet found it elsewhere on the system, or does without
    return found


def list_devices(kind: str, count: int, gpus: int | None = None) -> list[Device]:
    if why := capabilities.why_not_shared(KERNEL, count, gpus or 0):
        raise UnsupportedError(why)
    make = mx.gpu if kind == "gpu" else mx.cpu
    return [make(index) for index in range(count)]


def configure(precision: str, kind: str) -> None:
    """The CUDA libraries may read their settings as early as ``import mxnet``, so a notebook calls
    ``precisions.allow_tf32`` before that.
    """
    precisions.check(precision, kind, SKIPPED)
    precisions.allow_tf32(precision != "fp32")
    if kind == "cpu":  # read when MXNet computes for the first time
        os.environ.setdefault("MXNET_CPU_TEMP_COPY", str(SCRATCH))


def synchronize(devices: Sequence[Device]) -> None:
    mx.nd.waitall()  # the engine has one queue for all


def completion(result: Any) -> Callable[[], None] | None:
    """``result`` is a list with one array per device. On the CPU too, because MXNet is asynchronous
    there as well. Nothing queued later may write to the arrays.
    """

    def wait() -> None:
        for array in result:
            array.wait_to_read()

    return wait


def load_weights(model: Model, weights: Mapping[str, np.ndarray]) -> None:
    parameters = _named(model)
    weight_layout.refuse(sorted(parameters.keys() ^ weights.keys()))
    for name, parameter in parameters.items():
        array, known = weights[name], parameter.shape
        # A zero is a size that Gluon would infer at the first batch.
        if len(known) != array.ndim or any(
            size not in (0, -1, wanted) for size, wanted in zip(known, array.shape, strict=True)
        ):
            raise ValueError(f"weights do not fit the model: {name} {array.shape}, not {known}")
        if known != array.shape:
            parameter.shape = array.shape
            parameter.initialize(mx.init.Zero(), parameter.list_ctx(), force_reinit=True)
        parameter.set_data(mx.nd.array(array, dtype=array.dtype))


def dump_weights(model: Model) -> dict[str, np.ndarray]:
    """BatchNorm's statistics, of which each device has its own, are means, as Gluon saves them."""
    return {name: _read(parameter) for name, parameter in _named(model).items()}


def load_optimizer(
    model: Model, optimizer: Any, state: Mapping[str, np.ndarray], scaler: Any = None
) -> None:
    """MXNet has no ``scaler``."""
    if not state:
        return
    # The weights count their steps from here, on every device.
    optimizer.optimizer.begin_num_update = optimizer.optimizer.num_update = int(state["step"])
    factor = _in_velocity(optimizer)
    for name, number in _numbers(model, optimizer).items():
        for updater, device in zip(optimizer._updaters, optimizer._contexts, strict=True):
            found = [
                mx.nd.array(factor * state[f"{moment}/{name}"], device)
                for moment in ("first", "second")
                if f"{moment}/{name}" in state
            ]
            # Adam's is a pair, momentum's the array itself, plain SGD's nothing.
            updater.states[number] = (
                tuple(found) if len(found) == 2 else found[0] if found else None
            )
            updater.states_synced[number] = True


def dump_optimizer(model: Model, optimizer: Any, scaler: Any = None) -> dict[str, np.ndarray]:
    found = {}
    states = optimizer._updaters[0].states  # every device has the same
    for name, number in _numbers(model, optimizer).items():
        kept = states[number] if isinstance(states[number], tuple) else (states[number],)
        for moment, array in zip(("first", "second"), kept, strict=False):
            if array is not None:
                found[f"{moment}/{name}"] = array.asnumpy() / _in_velocity(optimizer)
    return found | {"step": np.array(optimizer.optimizer.num_update)}


def learning_rate(optimizer: Any) -> float:
    return float(optimizer.learning_rate)


def watch(replica: Any) -> Watch:
    optimizer = replica.optimizer.optimizer
    before = optimizer.num_update

    def seen() -> Seen:
        kind = type(optimizer).__name__
        momentum = getattr(optimizer, "momentum", 0.0)
        name = {"Adam": "adam", "SGD": "momentum" if momentum else "sgd"}.get(kind, kind)
        decays = optimizer._get_wds(list(optimizer._index_update_count))
        found = {"weight decay": (min(decays, default=0.0), max(decays, default=0.0))}
        constants = {"adam": {"beta 1": "beta1", "beta 2": "beta2", "epsilon": "epsilon"}}
        constants["momentum"] = {"momentum": "momentum"}
        for what, theirs in constants.get(name, {}).items():
            value = getattr(optimizer, theirs)
            found[what] = (value, value)
        if clipped := optimizer.clip_gradient:  # a rule has none
            found["clip_gradient"] = (clipped, clipped)
        held = [each for each in replica.optimizer._params if each.grad_req != "null"]
        factors = [each.lr_mult for each in held]
        if any(factor != 1 for factor in factors):
            found["rate factor"] = (min(factors), max(factors))
        weights = replica.network.collect_params().values()
        types = {np.dtype(each.dtype).name for each in weights if len(each.shape) == 4}
        return Seen(
            name,
            found,
            optimizer.num_update - before,
            "/".join(sorted(types)) or None,
            "graph (hybridize)" if getattr(replica.network, "_active", False) else "eager",
            precisions.tf32_allowed(),
            weights=sum(int(np.prod(each.shape)) for each in held),
            rate_in_velocity=True,
        )

    return Watch(partial(learning_rate, replica.optimizer), seen)


def exact(
    build_model: Callable[[Mapping[str, np.ndarray]], Model], weights: Mapping[str, np.ndarray]
) -> Model:
    model = build_model(weights)
    model.cast("float64")
    load_weights(model, weights)
    return model


def shallow(weights: Mapping[str, np.ndarray], devices: Sequence[Device]) -> Model:
    recipe = RECIPES["chexnet"]
    model = gluon.nn.HybridSequential()
    model.add(
        gluon.nn.Conv2D(64, 7, 2, 3, use_bias=False),
        gluon.nn.BatchNorm(1, 1 - recipe.bn_momentum, recipe.bn_epsilon),
        gluon.nn.Activation("relu"),
        gluon.nn.GlobalAvgPool2D(),
        gluon.nn.Dense(14),
    )
    model.initialize(ctx=list(devices))
    model.cast(weights["classifier.bias"].dtype)
    load_weights(model, weights)
    return model


def logits(model: Model, images: np.ndarray) -> np.ndarray:
    first = next(iter(model.collect_params().values()))
    return model(mx.nd.array(images, first.list_ctx()[0], first.dtype)).asnumpy()


def train_forward(model: Model, images: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    device = next(iter(model.collect_params().values())).list_ctx()[0]
    with _moved(model, [device]):
        batch = mx.nd.array(images, device, next(iter(model.collect_params().values())).dtype)
        with autograd.record():  # training mode
            found = model(batch)
        found.backward()  # in which MXNet moves the running statistics
        return found.asnumpy(), dump_weights(model)


def gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    """What ``Trainer.step(N)`` hands to its optimiser after the all-reduce."""
    return _gradients(model, images, targets, devices, "device", len(images))


def rank_gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    """What ``Trainer.step(N)`` hands to its optimiser, with the store over all nodes."""
    here = rank_info.here()
    assert here is not None, "there is one node"
    x, y = (np.array_split(array, here.ranks)[here.rank] for array in (images, targets))
    loss, found = _gradients(model, x, y, devices, mxnet_ranks.store(), len(images))
    return float(mxnet_ranks.gathered(np.array(loss)).sum()), found


def through_layer(
    layer: str, arrays: Mapping[str, np.ndarray], device: Device
) -> dict[str, np.ndarray]:
    given = {name: mx.nd.array(array, device) for name, array in arrays.items()}
    gradient, images = given.pop("gradient"), given["images"]
    for array in given.values():
        array.attach_grad()
    with autograd.record():
        if layer == "convolution":
            filters = given["weight"].shape[0]
            output = mx.nd.Convolution(
                images,
                given["weight"],
                no_bias=True,
                kernel=(3, 3),
                pad=(1, 1),
                num_filter=filters,
            )
        elif layer == "BatchNorm":
            scale, offset = given["scale"], given["offset"]
            running = [mx.nd.zeros(scale.shape, device) for _ in ("mean", "variance")]
            epsilon = RECIPES["chexnet"].bn_epsilon
            output = mx.nd.BatchNorm(images, scale, offset, *running, eps=epsilon, fix_gamma=False)
        else:
            largest = mx.nd.Pooling(images, kernel=(3, 3), stride=(2, 2), pool_type="max")
            output = mx.nd.Pooling(largest, kernel=(2, 2), stride=(2, 2), pool_type="avg")
    output.backward(gradient)
    found = {"output": output, **{name: array.grad for name, array in given.items()}}
    return {name: array.asnumpy() for name, array in found.items()}


def matrix_product(size: int, dtype: str, device: Device) -> Callable[[], None]:
    row = mx.nd.linspace(-1, 1, size, ctx=device)
    matrix = mx.nd.broadcast_mul(row.expand_dims(1), row.expand_dims(0)).astype(dtype)

    def multiply() -> None:
        mx.nd.dot(matrix, matrix).wait_to_read()

    return multiply


def all_reduced(shares: Sequence[np.ndarray], devices: Sequence[Device]) -> list[np.ndarray]:
    """As the notebook's ``Trainer`` does: a key-value store on the devices."""
    held = [mx.nd.array(share, device) for share, device in zip(shares, devices, strict=True)]
    store = mxnet_ranks.store()
    store = mx.kv.create(store) if isinstance(store, str) else store
    store.broadcast(0, mx.nd.zeros_like(held[0]), [mx.nd.zeros_like(array) for array in held])
    store.pushpull(0, held)
    return [array.asnumpy() for array in held]


class DeviceLosses:
    def __init__(self, devices: Sequence[Device]) -> None:
        self._sums = [mx.nd.zeros(1, device, dtype="float64") for device in devices]
        self._images = 0

    def add(self, position: int, loss: Any, images: int) -> None:
        self._sums[position] += loss.astype("float64") * images
        self._images += images

    def mean(self) -> float:
        own = np.array([sum(float(total.asscalar()) for total in self._sums), self._images])
        loss, images = mxnet_ranks.gathered(own).sum(axis=0)
        return float(loss / images)


def slowest(seconds: float, devices: Sequence[Device]) -> float:
    """Each node has one process."""
    return float(mxnet_ranks.gathered(np.array(seconds)).max())


def _gradients(
    model: Model,
    images: np.ndarray,
    targets: np.ndarray,
    devices: Sequence[Device],
    store: Any,
    total: int,
) -> tuple[float, dict[str, np.ndarray]]:
    """What a ``Trainer`` with this key-value store hands to its optimiser.

    Args:
        images: this process's.
        total: how many all processes have; the loss is this one's part of their mean.
    """
    with _moved(model, devices), _frozen(model):
        parameters = model.collect_params()
        dtype = next(iter(parameters.values())).dtype
        criterion = gluon.loss.SigmoidBinaryCrossEntropyLoss()
        parts = [
            gluon.utils.split_and_load(
                mx.nd.array(array, dtype=dtype), list(devices), even_split=False
            )
            for array in (images, targets)
        ]
        with autograd.record():
            losses = [criterion(model(x), y) for x, y in zip(*parts, strict=True)]
        autograd.backward(losses)
        recorder = _Recorder()
        trainer = gluon.Trainer(parameters, recorder, kvstore=store, update_on_kvstore=False)
        trainer.step(total)
        own = sum(float(loss.sum().asscalar()) for loss in losses)
        return own / total, {
            name: recorder.gradients[parameter.name]
            for name, parameter in _named(model).items()
            if parameter.grad_req != "null"
        }


class _Recorder(mx.optimizer.Optimizer):
    """An optimiser that keeps the gradients it is handed and leaves the weights alone."""

    def __init__(self) -> None:
        super().__init__()
        self.gradients: dict[str, np.ndarray] = {}

    def update(self, index: int, weight: Any, grad: Any, state: Any) -> None:
        name = self.param_dict[index].name
        if name not in self.gradients:  # after the all-reduce every device has the same
            self.gradients[name] = (grad * self.rescale_grad).asnumpy()


@contextmanager
def _moved(model: Model, devices: Sequence[Device]) -> Iterator[None]:
    """The model on ``devices``, and afterwards back where it was, bit for bit."""
    home = next(iter(model.collect_params().values())).list_ctx()
    held = dump_weights(model)
    try:
        _place(model, devices, held)
        yield
    finally:
        _place(model, home, held)


def _place(model: Model, devices: Sequence[Device], held: Mapping[str, np.ndarray]) -> None:
    model.collect_params().reset_ctx(list(devices))
    load_weights(model, held)  # reset_ctx takes the mean of the copies, which may round


@contextmanager
def _frozen(model: Model) -> Iterator[None]:
    """BatchNorm with its running statistics, and no dropout, although gradients are recorded.

    ``record(train_mode=False)`` would do so too, but gives wrong gradients of convolutions.
    """
    norms: list[Any] = []
    dropouts: list[Any] = []

    def collect(block: Any) -> None:
        if isinstance(block, gluon.nn.BatchNorm):
            norms.append(block)
        if isinstance(block, gluon.nn.Dropout):
            dropouts.append(block)

    model.apply(collect)
    # The compiled graph holds the setting of the time it was traced, so do without it here.
    active, flags = model._active, dict(model._flags)
    model.hybridize(False)
    before = [norm._kwargs["use_global_stats"] for norm in norms]
    rates = [dropout._rate for dropout in dropouts]
    try:
        for dropout in dropouts:
            dropout._rate = 0
        for norm in norms:
            norm._kwargs["use_global_stats"] = True
        yield
    finally:
        for norm, value in zip(norms, before, strict=True):
            norm._kwargs["use_global_stats"] = value
        for dropout, rate in zip(dropouts, rates, strict=True):
            dropout._rate = rate
        model.hybridize(active, **flags)


def _named(model: Model) -> dict[str, Any]:
    """The model's parameters by their canonical names, which are in the same order.

    Those of a custom network have the names of ``save_parameters``, which are their paths.
    """
    if custom.is_own(model):
        return dict(model._collect_params_with_prefix())
    parameters = list(model.collect_params().values())
    return dict(zip(names_by_count(len(parameters)), parameters, strict=True))


def _numbers(model: Model, optimizer: Any) -> dict[str, int]:
    """The numbers by which a ``Trainer`` knows what it trains, by the canonical names."""
    numbers = {parameter.name: number for number, parameter in enumerate(optimizer._params)}
    return {
        name: numbers[parameter.name]
        for name, parameter in _named(model).items()
        if parameter.name in numbers
    }


def _in_velocity(optimizer: Any) -> float:
    """What MXNet multiplies momentum's velocity by: minus the rate, which PyTorch keeps apart."""
    adam = isinstance(optimizer.optimizer, mx.optimizer.Adam)
    return 1.0 if adam else -learning_rate(optimizer)


def _read(parameter: Any) -> np.ndarray:
    copies = parameter.list_data()
    if parameter.grad_req != "null" or len(copies) == 1:
        return copies[0].asnumpy()
    mean = np.mean([copy.asnumpy() for copy in copies], axis=0, dtype=np.float64)
    return mean.astype(parameter.dtype)
