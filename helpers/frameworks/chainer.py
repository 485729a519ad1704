"""The framework-specific helper functions for Chainer.

Specific to Chainer: one process holds all CPU devices. Between GPUs, MultiprocessParallelUpdater
forks a process for each, which only a process can do that has not started CUDA. So nothing here
starts CUDA before the notebook's first step or evaluation, and the fairness check computes in
processes of its own (:func:`apart`).
"""

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any

import chainer
import numpy as np
from chainer.backends import cuda
from chainer.iterators import MultiprocessIterator
from threadpoolctl import threadpool_info, threadpool_limits

from helpers.frameworks import library_versions, memory, precisions, replicas
from helpers.frameworks.chainer_checks import *
from helpers.frameworks.chainer_state import *
from helpers.frameworks.interface import Found, Seen, Watch

NAME = "Chainer"
KERNEL = "chainer"

# Chainer makes the class of its links' classes inside a function, where cloudpickle cannot find it
# by name; given a name that can be imported, a notebook's Chain can be sent to another process.
_LinkMeta: Any = type(chainer.Link)
_LinkMeta.__module__, _LinkMeta.__qualname__ = __name__, "_LinkMeta"
_LinkMeta.__name__ = "_LinkMeta"

WORKSPACE = 512 * 2**20
"""Bytes a convolution of cuDNN may take for its work. CuPy's 8 MiB rule out most algorithms; more
than this would be missing for the batch on a GPU of 16 GB (one block of it stays in the pool)."""

# What Chainer cannot do, and why.
SKIPPED = {
    **precisions.ON_GPUS_ONLY,
    "bf16": "Chainer has no bfloat16",
    "fp16": (
        "Chainer's mixed16 stores the weights in float16, where the others round only products"
    ),
    "overlapped communication": "its updaters reduce the gradients after the whole backward pass",
    "training loss of all devices on GPUs": (
        "MultiprocessParallelUpdater keeps the other processes' losses"
    ),
    "the same bits from the same seed on GPUs": (
        "cuDNN's convolutions are reproducible only with chainer.config.cudnn_deterministic, which "
        "is not set"
    ),
    "pretrained DenseNet121": "Chainer and chainercv publish none; torchvision's file is converted",
}


def versions() -> dict[str, str]:
    found = {name: version(name) for name in ("chainer", "chainercv", "numpy")}
    found |= {"cupy": cuda.cupy.__version__} if cuda.available else {}
    return found | library_versions.nvidia()


def list_devices(kind: str, count: int) -> list[Device]:
    """Naming a GPU does not start CUDA in this process, so processes can still be forked."""
    if kind == "gpu":
        return [chainer.get_device(f"@cupy:{index}") for index in range(count)]
    return [chainer.get_device("@numpy")] * count


def configure(precision: str, kind: str) -> None:
    """Nothing here starts CUDA."""
    precisions.check(precision, kind, SKIPPED)
    precisions.allow_tf32(precision != "fp32")
    # A worker that fails ends the iterator's thread, and the iterator would wait for ever.
    warnings.simplefilter("error", MultiprocessIterator.TimeoutWarning)
    warnings.filterwarnings("ignore", "Transfer between @cupy devices", FutureWarning)
    chainer.global_config.autotune = True  # cuDNN finds its fastest algorithm for each layer,
    cuda.set_max_workspace_size(WORKSPACE)  # of those that make do with so much memory
    chainer.global_config.cudnn_fast_batch_normalization = True  # cuDNN's persistent kernels
    if kind == "cpu":  # where NumPy's arrays come from the C library, each time anew
        memory.keep_freed()


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
    optimizer, before = replica.optimizer, replica.optimizer.t

    def updates() -> int:
        return int(optimizer.t) - before

    def seen() -> Seen:
        kind = type(optimizer).__name__
        name = {"Adam": "adam", "SGD": "sgd"}.get(kind, kind)
        if name.endswith("MomentumSGD"):
            name = "momentum" if optimizer.momentum else "sgd"
        held = [each for _, each in trained(replica.network) if each.update_rule.enabled]
        rules = [each.update_rule for each in held]
        names = {
            "adam": {"beta 1": "beta1", "beta 2": "beta2"},
            "momentum": {"momentum": "momentum"},
        }
        found = {
            what: [getattr(rule.hyperparam, theirs) for rule in rules]
            for what, theirs in names.get(name, {}).items()
        }
        hooks = optimizer._hookable._pre_update_hooks
        decay = sum(getattr(hook, "rate", 0.0) for hook in hooks.values())
        found["weight decay"] = [
            decay + sum(getattr(hook, "rate", 0.0) for hook in own.values())
            for own in (rule._hookable._pre_update_hooks for rule in rules)
        ]
        rate = "alpha" if hasattr(optimizer, "alpha") else "lr"
        first = getattr(optimizer, rate)
        found["rate factor"] = [
            getattr(rule.hyperparam, rate) / first if first else 1.0 for rule in rules
        ]
        if name == "adam":
            epsilon = optimizer.eps
            if any("like_pytorch" in hook for hook in hooks):  # it has the bias correction in it
                epsilon /= math.sqrt(1 - optimizer.beta2 ** max(optimizer.t, 1))
            found["epsilon"] = [epsilon]
        return Seen(
            name,
            found,
            updates(),
            str(dtype_of(replica.network)),
            "eager",
            precisions.tf32_allowed(),
            max((pool["num_threads"] for pool in threadpool_info()), default=None),
            sum(each.size for each in held),
            rate_in_velocity=kind == "MomentumSGD",
        )

    def held() -> list[np.ndarray]:
        return [cuda.to_cpu([*trained(replica.network)][-1][1].array)]

    return Watch(partial(learning_rate, replica.optimizer), updates, seen, held)


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


def set_step(replica: Any, step: int) -> None:
    """The notebook's rate follows from the steps that the optimiser counts."""
    replica.optimizer.t = step


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
