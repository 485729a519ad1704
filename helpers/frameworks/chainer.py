"""The framework-specific helper functions for Chainer.

Nothing here starts CUDA before the notebook's first step or evaluation: else
MultiprocessParallelUpdater could not fork a process for each GPU.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, TypeAlias

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer.backends import cuda
from chainer.iterators import MultiprocessIterator
from threadpoolctl import threadpool_info, threadpool_limits

from helpers.frameworks import libraries, replicas, weight_layout
from helpers.frameworks.interface import BuildModel, Found, Seen, Watch, rule_of
from helpers.networks import chainer as networks
from helpers.networks import custom
from helpers.recipe import RECIPES

Device: TypeAlias = chainer.backend.Device
Model: TypeAlias = chainer.Chain

# Chainer makes the class of its links' classes inside a function, where cloudpickle cannot find it
# by name; given a name that can be imported, a notebook's Chain can be sent to another process.
_LinkMeta: Any = type(chainer.Link)
_LinkMeta.__module__, _LinkMeta.__qualname__ = __name__, "_LinkMeta"
_LinkMeta.__name__ = "_LinkMeta"

SKIPPED = {
    "bf16": "Chainer has no bfloat16",
    "fp16": (
        "Chainer's mixed16 stores the weights in float16, where the others round only products"
    ),
}


def versions() -> dict[str, str]:
    found = {name: version(name) for name in ("chainer", "chainercv", "numpy")}
    found |= {"cupy": cuda.cupy.__version__} if cuda.available else {}
    return found | libraries.nvidia()


def list_devices(kind: str, count: int) -> list[Device]:
    """Naming a GPU does not start CUDA in this process, so processes can still be forked."""
    if kind == "gpu":
        return [chainer.get_device(f"@cupy:{index}") for index in range(count)]
    return [chainer.get_device("@numpy")] * count


def configure(precision: str, kind: str) -> None:
    libraries.check_precision(precision, kind, SKIPPED)
    libraries.allow_tf32(precision != "fp32")
    # A worker that fails ends the iterator's thread, and the iterator would wait for ever.
    warnings.simplefilter("error", MultiprocessIterator.TimeoutWarning)
    warnings.filterwarnings("ignore", "Transfer between @cupy devices", FutureWarning)
    chainer.global_config.autotune = True  # cuDNN finds its fastest algorithm for each layer
    cuda.set_max_workspace_size(512 * 2**20)  # CuPy's 8 MiB rule out most algorithms
    chainer.global_config.cudnn_fast_batch_normalization = True  # cuDNN's persistent kernels
    if kind == "cpu":  # where NumPy's arrays come from the C library, each time anew
        libraries.keep_freed()


def synchronize(devices: Sequence[Device]) -> None:
    """A process that has not started CUDA has nothing to wait for, and must not start it."""
    for device in devices:
        if isinstance(device, cuda.GpuDevice) and _started():
            device.device.synchronize()


def queued(device: Device) -> Callable[[], None] | None:
    """The event is recorded on the device's current stream now."""
    if device.xp is np:
        return None  # NumPy computes at once
    with chainer.using_device(device):
        event = cuda.cupy.cuda.Event(block=True)  # sleeps instead of keeping a core busy
        event.record()
    wait: Callable[[], None] = event.synchronize
    return wait


def watch(replica: Any) -> Watch:
    optimizer = replica.optimizer
    rate = "alpha" if hasattr(optimizer, "alpha") else "lr"

    def seen() -> Seen:
        held = [each for _, each in _trained(replica.network) if each.update_rule.enabled]
        rules = [each.update_rule for each in held]
        found = {
            what: [getattr(rule.hyperparam, theirs) for rule in rules]
            for what, theirs in _CONSTANTS.items()
            if hasattr(optimizer, theirs)
        }
        hooks = optimizer._hookable._pre_update_hooks
        found["weight decay"] = [
            sum(getattr(hook, "rate", 0.0) for hook in (*hooks.values(), *own.values()))
            for own in (rule._hookable._pre_update_hooks for rule in rules)
        ]
        first = getattr(optimizer, rate)
        found["rate factor"] = [
            getattr(rule.hyperparam, rate) / first if first else 1.0 for rule in rules
        ]
        if hasattr(optimizer, "eps"):
            epsilon = optimizer.eps
            if any("like_pytorch" in hook for hook in hooks):  # it has the bias correction in it
                epsilon /= math.sqrt(1 - optimizer.beta2 ** max(optimizer.t, 1))
            found["epsilon"] = [epsilon]
        return Seen(
            rule_of(optimizer, getattr(optimizer, "momentum", None)),
            found,
            str(_dtype_of(replica.network)),
            "eager",
            libraries.tf32_allowed(),
            max((pool["num_threads"] for pool in threadpool_info()), default=None),
            sum(each.size for each in held),
            rate_in_velocity=type(optimizer).__name__ == "MomentumSGD",
        )

    def held() -> list[np.ndarray]:
        return [cuda.to_cpu([*_trained(replica.network)][-1][1].array)]

    return Watch(lambda: float(getattr(optimizer, rate)), lambda: int(optimizer.t), seen, held)


_CONSTANTS = {"beta 1": "beta1", "beta 2": "beta2", "momentum": "momentum"}


def make_current(device: Device, threads: int | None) -> None:
    device.use()
    if threads is not None:
        threadpool_limits(threads)  # of NumPy's matrix products


def free_memory(devices: Sequence[Device]) -> None:
    for device in devices:
        if isinstance(device, cuda.GpuDevice) and _started():
            with chainer.using_device(device):
                cuda.memory_pool.free_all_blocks()


def as_loaded(pixels: np.ndarray, targets: np.ndarray, numbers: np.ndarray) -> Any:
    return pixels, targets, numbers


def set_epoch(loader: Any, epoch: int) -> None:
    loader.set_epoch(epoch)


def apart(function: Callable[[], Found], devices: Sequence[Device]) -> Found:
    if devices[0].name == "@numpy":
        return function()
    found: Found = replicas.run(lambda rank: function(), 1)[0]
    return found


def slowest(seconds: float, devices: Sequence[Device]) -> float:
    """That of the first process, because the other processes of the updater do not share theirs."""
    return seconds


def _started() -> bool:
    """Whether this process has started CUDA: Chainer's updaters ask like this."""
    driver = cuda.cupy.cuda.driver
    try:
        driver.ctxGetCurrent()
    except driver.CUDADriverError:
        return False
    return True


# What a link calls its arrays, and what torchvision calls them.
_NAMES = {
    "W": "weight",
    "b": "bias",
    "gamma": "weight",
    "beta": "bias",
    "avg_mean": "running_mean",
    "avg_var": "running_var",
}


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


def load_optimizer(replica: Any, state: Mapping[str, np.ndarray], step: int) -> None:
    """The notebook's rate follows from the steps that the optimiser counts."""
    chainer.serializers.NpzDeserializer(state).load(replica.optimizer)


def dump_optimizer(replica: Any) -> dict[str, np.ndarray]:
    found = chainer.serializers.DictionarySerializer()
    found.save(replica.optimizer)
    return {name: np.array(array) for name, array in found.target.items()}


def state_of(model: Model, weights: Mapping[str, np.ndarray]) -> Any:
    """As ``NpzDeserializer`` reads them; the networks have the recipe's BatchNorm already."""
    found = {name: np.asarray(value) for name, value in _held(model)}
    for name in found:
        if (known := _canonical(model, name)) in weights:
            found[name] = np.asarray(weights[known])
    return found


def _trained(model: Model) -> Iterator[tuple[str, chainer.Parameter]]:
    return ((_canonical(model, path[1:]), each) for path, each in model.namedparams())


def _dtype_of(model: Model) -> np.dtype:
    return next(model.params()).dtype


def _held(model: Model) -> Iterator[tuple[str, Any]]:
    """Chainer's own name and value of everything that links keep: ``features/conv0/W``."""
    for path, link in model.namedlinks():
        for name in sorted({*link._params, *link._persistent}):
            value = getattr(link, name)
            held = value.array if isinstance(value, chainer.Parameter) else value
            yield f"{path}/{name}".lstrip("/"), held


def _canonical(model: Model, name: str) -> str:
    """The canonical name of what Chainer calls ``name``; a custom network keeps Chainer's."""
    link, _, own = name.rpartition("/")
    if custom.is_own(model) or own not in _NAMES:
        return name
    return f"{link.replace('/', '.')}.{_NAMES[own]}"


def _arrays(model: Model) -> Iterator[tuple[str, Any]]:
    """Canonical name and array of every parameter and running statistic."""
    for name, value in _held(model):
        if isinstance(value, chainer.get_array_types()):
            yield _canonical(model, name), value


def exact(build_model: BuildModel, weights: Mapping[str, np.ndarray]) -> Model:
    with chainer.using_config("dtype", np.float64):
        return build_model(weights)


def shallow(weights: Mapping[str, np.ndarray], devices: Sequence[Device]) -> Model:
    with chainer.using_config("dtype", weights["classifier.bias"].dtype):
        model = networks.build("shallow", weights, RECIPES["chexnet"])
    load_weights(model, weights)
    return model


def logits(model: Model, images: np.ndarray) -> np.ndarray:
    with (
        chainer.using_config("train", False),
        chainer.no_backprop_mode(),
        chainer.using_device(model.device),
    ):
        batch = model.xp.asarray(images, dtype=_dtype_of(model))
        return cuda.to_cpu(model(batch).array)


def train_forward(model: Model, images: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    other = model.copy(mode="copy")
    with chainer.no_backprop_mode(), chainer.using_device(model.device):  # training is the default
        found = other(model.xp.asarray(images, dtype=_dtype_of(model)))
    return cuda.to_cpu(found.array), dump_weights(other)


def gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    """ParallelUpdater's sums, for its optimiser: of ``n`` devices each takes every n-th image."""
    dtype = _dtype_of(model)
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
        for name, parameter in _trained(model)
        if parameter.grad is not None
    }


@contextmanager
def seen_by(model: Model) -> Iterator[list[np.ndarray]]:
    seen, hook = list[np.ndarray](), chainer.LinkHook()

    def note(call: Any) -> None:
        given = call.args[0]
        seen.append(cuda.to_cpu(getattr(given, "array", given)))

    hook.forward_preprocess = note
    layer = next(link for link in model.links() if isinstance(link, L.Convolution2D))
    layer.add_hook(hook)
    try:
        yield seen
    finally:
        layer.delete_hook(hook.name)


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
