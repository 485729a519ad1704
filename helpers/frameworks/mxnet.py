"""The framework-specific helper functions for MXNet Gluon.

Specific to Gluon: one process drives all devices of a node and a parameter has a copy on each of
them, so ``devices`` holds all devices here; how nodes are joined is in ``mxnet_ranks``. Arrays are
asynchronous on the CPU too: an operation returns at once and the engine computes behind it.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import gluon

from helpers.frameworks import library_versions, mxnet_ranks, precisions
from helpers.frameworks.interface import Seen, Watch
from helpers.frameworks.mxnet_checks import *
from helpers.frameworks.mxnet_state import *

NAME = "MXNet Gluon"
KERNEL = "mxnet"

# What Gluon cannot do, or does otherwise than the others, and why.
SKIPPED = {
    **precisions.ON_GPUS_ONLY,
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
        "cuDNN's convolutions are deterministic only with MXNET_ENFORCE_DETERMINISM=1, which is "
        "not set"
    ),
    "Hopper GPUs and later": (
        "the last wheels, mxnet-cu117 1.9.1, hold machine code for sm_50 to sm_86 and no PTX"
    ),
}

SCRATCH = 512
"""Buffers that operations on CPUs compute in, for all devices together: ``MXNET_CPU_TEMP_COPY``.
MXNet's own 4 let no two devices train at the same time (docs/speed.md)."""


def versions() -> dict[str, str]:
    return {"mxnet": mx.__version__, "numpy": np.__version__} | library_versions.nvidia()


def list_devices(kind: str, count: int) -> list[Device]:
    make = mx.gpu if kind == "gpu" else mx.cpu
    return [make(index) for index in range(count)]


def configure(precision: str, kind: str) -> None:
    precisions.check(precision, kind, SKIPPED)
    precisions.allow_tf32(precision != "fp32")
    if kind == "cpu":  # read when MXNet computes for the first time
        os.environ.setdefault("MXNET_CPU_TEMP_COPY", str(SCRATCH))
    if mxnet_ranks.kind() == mxnet_ranks.KIND:
        mxnet_ranks.register()


def synchronize(devices: Sequence[Device]) -> None:
    mx.nd.waitall()  # the engine has one queue for all


def watch(replica: Any) -> Watch:
    optimizer = replica.optimizer.optimizer
    before = optimizer.num_update
    _Watched.first = next(iter(replica.network.collect_params().values()))

    def updates() -> int:
        return int(optimizer.num_update) - before

    def seen() -> Seen:
        kind = type(optimizer).__name__
        momentum = getattr(optimizer, "momentum", 0.0)
        name = {"Adam": "adam", "SGD": "momentum" if momentum else "sgd"}.get(kind, kind)
        decays = optimizer._get_wds(list(optimizer._index_update_count))
        found = {"weight decay": decays or [0.0], "clip_gradient": [optimizer.clip_gradient or 0.0]}
        constants = {"adam": {"beta 1": "beta1", "beta 2": "beta2", "epsilon": "epsilon"}}
        constants["momentum"] = {"momentum": "momentum"}
        for what, theirs in constants.get(name, {}).items():
            found[what] = [getattr(optimizer, theirs)]
        held = [each for each in replica.optimizer._params if each.grad_req != "null"]
        found["rate factor"] = [each.lr_mult for each in held]
        weights = replica.network.collect_params().values()
        types = {np.dtype(each.dtype).name for each in weights if len(each.shape) == 4}
        return Seen(
            name,
            found,
            updates(),
            "/".join(sorted(types)) or None,
            "graph (hybridize)" if getattr(replica.network, "_active", False) else "eager",
            precisions.tf32_allowed(),
            weights=sum(int(np.prod(each.shape)) for each in held),
            rate_in_velocity=True,
        )

    def held() -> list[np.ndarray]:
        last = [each for each in replica.optimizer._params if each.grad_req != "null"][-1]
        return [each.asnumpy() for each in last.list_data()]

    return Watch(lambda: float(replica.optimizer.learning_rate), updates, seen, held)


def queued(device: Device) -> Callable[[], None] | None:
    """On all devices, of the replica that :func:`watch` has seen last.

    A copy of the first layer's weights, in which the backward pass ends, comes after this step's
    update and before the next one's.
    """
    if _Watched.first is None:
        return None
    copies = [weights.copy() for weights in _Watched.first.list_data()]

    def wait() -> None:
        for each in copies:
            each.wait_to_read()

    return wait


class _Watched:
    first: Any = None
    """The first layer's weights."""


def free_memory(devices: Sequence[Device]) -> None:
    for device in devices:
        if device.device_type == "gpu":
            device.empty_cache()


def as_loaded(pixels: np.ndarray, targets: np.ndarray, numbers: np.ndarray) -> Any:
    return [mx.nd.from_numpy(part.copy()) for part in (pixels, targets, numbers)]


def set_epoch(loader: Any, epoch: int) -> None:
    loader._batch_sampler.set_epoch(epoch)


def set_step(replica: Any, step: int) -> None:
    """The optimiser counts its steps itself; momentum's velocity has the last one's rate in it."""
    replica.optimizer.set_learning_rate(replica.schedule(step - 1))


def slowest(seconds: float, devices: Sequence[Device]) -> float:
    """Each node has one process."""
    return float(mxnet_ranks.gathered(np.array(seconds)).max())
