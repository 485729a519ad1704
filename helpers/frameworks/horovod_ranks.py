"""Code that TensorFlow's and Keras's ranks under Horovod share: one process and device per rank."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from importlib.metadata import version

import numpy as np

from helpers.frameworks import rank_info, weight_layout

# isort: split
import tensorflow as tf

from helpers.frameworks.tensorflow import Device, Model, _as_tensor, _trained

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "pkg_resources is deprecated")
    import horovod.tensorflow as hvd


def versions() -> dict[str, str]:
    return {"horovod": version("horovod"), "mpich": version("mpich")}


def list_devices(kind: str, count: int) -> list[Device]:
    """This process's device, once for each device of its node; it sees no other."""
    here = rank_info.here()
    sharing = 1 if here is None else here.ranks if here.virtual else count
    if kind == "gpu":
        gpu = tf.config.list_physical_devices("GPU")[0 if here is None else here.local_rank]
        tf.config.set_visible_devices(gpu, "GPU")
        tf.config.experimental.set_memory_growth(gpu, True)
    elif sharing > 1:  # each would start as many threads as there are cores
        threads = max(1, len(os.sched_getaffinity(0)) // sharing)
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    return [f"{kind.upper()}:0"] * count


def rank_gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    """The means over all ranks, by Horovod's tape."""
    _join()
    rank, ranks, named = hvd.rank(), hvd.size(), _trained(model)
    watched = list(named.values())
    dtype = watched[0].dtype
    with tf.GradientTape() as tape:
        logits = model(_as_tensor(images[rank::ranks], dtype), training=False)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(
            labels=tf.constant(targets[rank::ranks], dtype), logits=logits
        )
        # The mean over the ranks divides by their number again.
        loss = tf.reduce_sum(losses) * ranks / tf.cast(targets.size, dtype)
    found = hvd.DistributedGradientTape(tape).gradient(loss, watched)
    return float(hvd.allreduce(loss)), {
        name: weight_layout.first(gradient.numpy())
        for name, gradient in zip(named, found, strict=True)
    }


def make_current(device: Device, threads: int | None) -> None:
    """A rank sees only its own device."""


def slowest(seconds: float, devices: Sequence[Device]) -> float:
    _join()
    return float(hvd.allgather(tf.constant([seconds], tf.float64)).numpy().max())


def _join() -> None:
    if not hvd.is_initialized():
        hvd.init()
