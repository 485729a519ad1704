"""The framework-specific helper functions for TensorFlow without Keras.

Specific to TensorFlow: one process drives all devices of a node through ``tf.distribute``, so
``devices`` holds all of them; how nodes are joined is in ``tensorflow_ranks``. Images and weights
are channels-last. A model is a ``tf.Module`` called as ``model(images, training=...)`` whose
variables bear torchvision's names.
"""

import logging
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Semaphore
from typing import Any

import numpy as np

from helpers.frameworks import (
    cpu_cores,
    library_versions,
    memory,
    precisions,
    tensorflow_ranks,
)
from helpers.frameworks.interface import Seen, Watch

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # errors only

# isort: split
import tensorflow as tf

from helpers.frameworks import tensorflow_strategies
from helpers.frameworks.tensorflow_checks import *
from helpers.frameworks.tensorflow_state import *

NAME = "TensorFlow"
KERNEL = "tensorflow"

# What TensorFlow cannot do, and why.
SKIPPED = {
    **precisions.ON_GPUS_ONLY,
    **precisions.LEFT_TO_PYTORCH,
    "training in float64": "fused_batch_norm computes in float32 and in 16 bits only",
    "the same bits from the same seed on GPUs": (
        "operations may add in another order each time, as enable_op_determinism, which costs "
        "speed, is not set"
    ),
}

_apply_debug_options = tf.data.Dataset._apply_debug_options  # TensorFlow's own
# More than steps are ever queued, so that each has a thread to wait for it at once.
_WAITING = ThreadPoolExecutor(64, "waiting for a device")


def versions() -> dict[str, str]:
    return {"tensorflow": tf.__version__} | library_versions.nvidia()


def list_devices(kind: str, count: int) -> list[Device]:
    """Call it before TensorFlow computes anything: the devices cannot change afterwards
    (RuntimeError). TensorFlow then sees ``count`` GPUs and takes their memory as it is needed.
    """
    tensorflow_ranks.use(kind, count)
    physical = tf.config.list_physical_devices(kind.upper())
    if kind == "gpu":
        tf.config.set_visible_devices(physical[:count], "GPU")
        for device in physical[:count]:
            tf.config.experimental.set_memory_growth(device, True)
        return [f"GPU:{index}" for index in range(count)]
    parts = [tf.config.LogicalDeviceConfiguration()] * count
    try:
        tf.config.set_logical_device_configuration(physical[0], parts)
        if cpu_cores.threads_of_a_device() == 1:  # one operation a device, on one thread
            tf.config.threading.set_intra_op_parallelism_threads(1)
            tf.config.threading.set_inter_op_parallelism_threads(count)
    except RuntimeError:  # TensorFlow has started: what was made then is what there is
        if len(tf.config.list_logical_devices("CPU")) < count:
            raise
    return [f"CPU:{index}" for index in range(count)]


def configure(precision: str, kind: str) -> None:
    precisions.check(precision, kind, SKIPPED)
    # By default TensorFlow rounds convolutions and matrix products on a GPU to TF32.
    tf.config.experimental.enable_tensor_float_32_execution(precision != "fp32")
    # Else what has no code for GPUs would be computed on the CPU, and nothing would tell.
    tf.config.set_soft_device_placement(kind != "gpu")
    tf.data.Dataset._apply_debug_options = _without_autotuning
    tf.get_logger().addFilter(_worth_saying)
    warnings.filterwarnings("ignore", "Even though the `tf.config", UserWarning)
    tensorflow_strategies.with_keys_of_its_own()
    if kind == "cpu":  # where TensorFlow has no memory pool of its own; else a third of a step
        memory.keep_freed()


def synchronize(devices: Sequence[Device]) -> None:
    for device in devices:
        if device.startswith("GPU"):
            with tf.device(device):
                tf.zeros(()).numpy()  # a stream works in order, so this comes last


def queued(device: Device) -> Callable[[], None] | None:
    """A number's copy to the host, in a thread, comes after the work queued when it begins.

    So this returns only once the copy has begun; else the next step would be waited for as well.
    """
    if not device.startswith("GPU"):
        return None
    begun = Semaphore(0)
    with tf.device(device):
        number = tf.zeros(())

    def copy_to_host() -> None:
        begun.release()  # this thread keeps Python's lock until TensorFlow has the order
        number.numpy()

    copy = _WAITING.submit(copy_to_host)
    begun.acquire()
    wait: Callable[[], None] = copy.result
    return wait


def watch(replica: Any) -> Watch:
    optimizer = replica.optimizer
    before = int(optimizer.step.numpy())

    def updates() -> int:
        return int(optimizer.step.numpy()) - before

    def seen() -> Seen:
        compiled, types = _traced(replica.step)
        execution = "compiled (tf.function, XLA)" if compiled else "graph (tf.function)"
        return Seen(
            optimizer.rule,
            {what: [value] for what, value in optimizer.constants.items()},
            updates(),
            "/".join(sorted(types)) or None,
            "eager" if tf.config.functions_run_eagerly() else execution,
            tf.config.experimental.tensor_float_32_execution_enabled(),
            weights=sum(each.shape.num_elements() for each in optimizer.weights),
        )

    def held() -> list[np.ndarray]:
        last = [*trained(replica.network).values()][-1]
        return [each.numpy() for each in getattr(last, "values", (last,))]

    return Watch(lambda: float(optimizer.rate.numpy()), updates, seen, held)


def _traced(function: Any) -> tuple[bool, set[str]]:
    """Whether XLA compiles a part of a traced function, and in which types it convolves."""
    compiled, types = False, set()
    for traced in function._list_all_concrete_functions():
        definition = traced.graph.as_graph_def()
        for nodes in (definition.node, *(each.node_def for each in definition.library.function)):
            compiled |= any(node.attr["_XlaMustCompile"].b for node in nodes)
            types |= {node.attr["T"].type for node in nodes if node.op == "Conv2D"}
    return compiled, {tf.dtypes.as_dtype(each).name for each in types}


def free_memory(devices: Sequence[Device]) -> None:
    """Its pool serves training, too."""


def as_loaded(pixels: np.ndarray, targets: np.ndarray, numbers: np.ndarray) -> Any:
    own = tensorflow_strategies.own_devices()
    return tuple(
        tensorflow_strategies.shares([tf.constant(share) for share in np.split(part, own)])
        for part in (pixels, targets, numbers)
    )


def set_epoch(loader: Any, epoch: int) -> None:
    loader.epoch = epoch


def set_step(replica: Any, step: int) -> None:
    for _ in range(step):
        next(replica.rates)


def slowest(seconds: float, devices: Sequence[Device]) -> float:
    """Each node has one process."""
    return float(tensorflow_ranks.gathered(np.array(seconds)).max())


def _worth_saying(record: logging.LogRecord) -> bool:
    """Not to which devices a strategy reduces, nor what the check does eagerly or is known."""
    return record.levelno > logging.INFO and not any(said in record.msg for said in _NOT_WORTH)


_NOT_WORTH = (
    "eagerly has significant",  # :func:`gradients`
    "gather/all_gather with NCCL",  # of an evaluation's logits, which are few
    "triggered tf.function retracing",  # of each network of the check
    "AutoGraph could not transform",  # a cell that is in no file has no branch on a tensor
)


def _without_autotuning(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """What is iterated in place of ``dataset``: the same, with no thread that tunes it.

    An iterator that ends waits for such a thread, which may sleep for a minute. Options of a data
    set do not reach those that ``tf.distribute`` iterates on each device; all go through
    ``_apply_debug_options``.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return _apply_debug_options(dataset).with_options(options)
