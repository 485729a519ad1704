"""Code that TensorFlow's and Keras's ranks under Horovod share: one process and device per rank.

``mpiexec`` has started the ranks (``helpers.launch``), and ``hvd.init()`` joins them, by MPI. A
rank sees one device of its machine, so that whatever it computes is there; it calls it ``CPU:0`` or
``GPU:0``. In a notebook's kernel, the world has no other process.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, TypeAlias

import numpy as np

from helpers.frameworks import rank_info, weight_layout

# isort: split
import tensorflow as tf

from helpers.frameworks.tensorflow import _as_tensor

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "pkg_resources is deprecated")
    import horovod.tensorflow as hvd

Device: TypeAlias = str


def versions() -> dict[str, str]:
    """The versions of Horovod and of the MPI that it was compiled with."""
    return {"horovod": version("horovod"), "mpich": version("mpich")}


def list_devices(kind: str, count: int) -> list[Device]:
    """This process's device, once for each device of its node."""
    here = rank_info.here()
    if here is None:
        return [_see_one(kind, 0, 1)] * count
    return [_see_one(kind, here.local_rank, here.ranks if here.virtual else count)] * count


def mean_gradients(
    model: Any, variables: Mapping[str, Any], images: np.ndarray, targets: np.ndarray
) -> tuple[float, dict[str, np.ndarray]]:
    """``rank_gradients`` by Horovod's tape, with the trainable variables by torchvision's names."""
    _join()
    rank, ranks = hvd.rank(), hvd.size()
    dtype = next(iter(variables.values())).dtype
    with tf.GradientTape() as tape:
        logits = model(_as_tensor(images[rank::ranks], dtype), training=False)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(
            labels=tf.constant(targets[rank::ranks], dtype), logits=logits
        )
        # The mean over the ranks divides by their number again.
        loss = tf.reduce_sum(losses) * ranks / tf.cast(targets.size, dtype)
    found = hvd.DistributedGradientTape(tape).gradient(loss, list(variables.values()))
    return float(hvd.allreduce(loss)), {
        name: weight_layout.first(gradient.numpy())
        for name, gradient in zip(variables, found, strict=True)
    }


def make_current(device: Device, threads: int | None) -> None:
    """A rank sees only its own device."""


def slowest(seconds: float, devices: Sequence[Device]) -> float:
    _join()
    return float(hvd.allgather(tf.constant([seconds], tf.float64)).numpy().max())


def _join() -> None:
    if not hvd.is_initialized():
        hvd.init()


def _see_one(kind: str, number: int, sharing: int) -> str:
    """Let this process have this device of its machine alone; returns what it is called.

    ``sharing``: how many processes share the machine's cores.
    """
    if kind == "gpu":
        device = tf.config.list_physical_devices("GPU")[number]
        tf.config.set_visible_devices(device, "GPU")
        tf.config.experimental.set_memory_growth(device, True)
    elif sharing > 1:  # each would start as many threads as there are cores
        threads = max(1, len(os.sched_getaffinity(0)) // sharing)
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    return f"{kind.upper()}:0"
