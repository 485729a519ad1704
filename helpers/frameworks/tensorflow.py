"""The framework-specific helper functions for TensorFlow without Keras.

A model is a ``tf.Module`` called as ``model(images, training=...)`` whose variables bear
torchvision's names; Keras's models use most of these functions, too.
"""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import singledispatch
from itertools import chain
from threading import Semaphore
from typing import Any, TypeAlias

import numpy as np

from helpers.frameworks import cpu_cores, libraries, rank_info, tensorflow_ranks, weight_layout
from helpers.frameworks.interface import BuildModel, Seen, Watch

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # errors only

# isort: split
import tensorflow as tf

from helpers.frameworks import tensorflow_strategies
from helpers.frameworks.tensorflow_strategies import Device, slowest
from helpers.networks import custom
from helpers.networks import tensorflow as networks
from helpers.recipe import RECIPES

Model: TypeAlias = tf.Module

SKIPPED = {
    **libraries.LEFT_TO_PYTORCH,
    "training in float64": "fused_batch_norm computes in float32 and in 16 bits only",
}

_apply_debug_options = tf.data.Dataset._apply_debug_options  # TensorFlow's own
# More than steps are ever queued, so that each has a thread to wait for it at once.
_WAITING = ThreadPoolExecutor(64, "waiting for a device")


def versions() -> dict[str, str]:
    return {"tensorflow": tf.__version__} | libraries.nvidia()


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
        if cpu_cores.Confined.threads == 1:  # one operation a device, on one thread
            tf.config.threading.set_intra_op_parallelism_threads(1)
            tf.config.threading.set_inter_op_parallelism_threads(count)
    except RuntimeError:  # TensorFlow has started: what was made then is what there is
        if len(tf.config.list_logical_devices("CPU")) < count:
            raise
    return [f"CPU:{index}" for index in range(count)]


def configure(precision: str, kind: str) -> None:
    libraries.check_precision(precision, kind, SKIPPED)
    # By default TensorFlow rounds convolutions and matrix products on a GPU to TF32.
    tf.config.experimental.enable_tensor_float_32_execution(precision != "fp32")
    # Else what has no code for GPUs would be computed on the CPU, and nothing would tell.
    tf.config.set_soft_device_placement(kind != "gpu")
    tf.data.Dataset._apply_debug_options = _without_autotuning
    tf.get_logger().setLevel("ERROR")
    warnings.filterwarnings("ignore", "Even though the `tf.config", UserWarning)
    tensorflow_strategies.with_keys_of_its_own()
    if kind == "cpu":  # where TensorFlow has no memory pool of its own; else a third of a step
        libraries.keep_freed()


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

    def seen() -> Seen:
        compiled, types = _traced(replica.step)
        execution = "compiled (tf.function, XLA)" if compiled else "graph (tf.function)"
        return Seen(
            optimizer.rule,
            {what: [value] for what, value in optimizer.constants.items()},
            "/".join(sorted(types)) or None,
            "eager" if tf.config.functions_run_eagerly() else execution,
            tf.config.experimental.tensor_float_32_execution_enabled(),
            weights=sum(each.shape.num_elements() for each in optimizer.weights),
        )

    return Watch(
        lambda: float(optimizer.rate.numpy()),
        lambda: int(optimizer.step.numpy()),
        seen,
        lambda: _copies(optimizer.weights[-1]),
    )


def _copies(variable: tf.Variable) -> list[np.ndarray]:
    """A variable as each device of its strategy holds it."""
    return [each.numpy() for each in getattr(variable, "values", (variable,))]


def _traced(function: Any) -> tuple[bool, set[str]]:
    """Whether XLA compiles a part of a traced function, and in which types it convolves."""
    compiled, types = False, set()
    for traced in function._list_all_concrete_functions():
        definition = traced.graph.as_graph_def()
        for nodes in (definition.node, *(each.node_def for each in definition.library.function)):
            compiled |= any(node.attr["_XlaMustCompile"].b for node in nodes)
            types |= {node.attr["T"].type for node in nodes if node.op == "Conv2D"}
    return compiled, {tf.dtypes.as_dtype(each).name for each in types}


def as_loaded(pixels: np.ndarray, targets: np.ndarray, numbers: np.ndarray) -> Any:
    own, strategy = tensorflow_strategies.own_devices(), tensorflow_strategies.Noted.strategy
    return tuple(
        tensorflow_strategies.shares(strategy, list(map(tf.constant, np.split(part, own))))
        for part in (pixels, targets, numbers)
    )


def set_epoch(loader: Any, epoch: int) -> None:
    loader.epoch = epoch


def _without_autotuning(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """An iterator that ends waits for the thread that tunes it, which may sleep for a minute."""
    # A data set's own options do not reach those that ``tf.distribute`` iterates on each device.
    options = tf.data.Options()
    options.autotune.enabled = False
    return _apply_debug_options(dataset).with_options(options)


def load_weights(model: Model, weights: Mapping[str, np.ndarray]) -> None:
    named = _named(model)
    weight_layout.check(named, weights)
    for name, variable in named.items():
        variable.assign(weight_layout.last(weights[name]))


def dump_weights(model: Model) -> dict[str, np.ndarray]:
    """BatchNorm's statistics are each replica's own; these are replica 0's."""
    return {name: weight_layout.first(v.numpy()) for name, v in _named(model).items()}


def load_optimizer(replica: Any, state: Mapping[str, np.ndarray], step: int) -> None:
    kept = chain([replica.optimizer.step], *replica.optimizer.moments)
    for number, variable in enumerate(kept):
        variable.assign(state[str(number)])
    for _ in range(step):
        next(replica.rates)


def dump_optimizer(replica: Any) -> dict[str, np.ndarray]:
    """By their numbers."""
    kept = chain([replica.optimizer.step], *replica.optimizer.moments)
    return {str(k): np.array(each.numpy()) for k, each in enumerate(kept)}


def state_of(model: Model, weights: Mapping[str, np.ndarray]) -> Any:
    """An array for each of ``model.variables``; its epsilon and momentum are the recipe's."""
    tensorflow_strategies.note(model.variables)
    return _in_order(model.variables, _named(model), weights)


def _in_order(
    variables: Sequence[Any], named: Mapping[str, Any], weights: Mapping[str, np.ndarray]
) -> list[np.ndarray]:
    weight_layout.check(named, weights)
    arrays = {id(each): weight_layout.last(weights[name]) for name, each in named.items()}
    return [arrays[id(variable)] for variable in variables]


@singledispatch
def _named(model: Any) -> dict[str, Any]:
    """By torchvision's names; a custom network's by their paths, because many share a name."""
    if custom.is_own(model):
        found = model._flatten(predicate=lambda part: isinstance(part, tf.Variable), with_path=True)
        return {".".join(map(str, path)): variable for path, variable in found}
    return {variable.name.removesuffix(":0"): variable for variable in model.variables}


def _trained(model: Any) -> dict[str, Any]:
    trained = {id(variable) for variable in model.trainable_variables}
    return {name: each for name, each in _named(model).items() if id(each) in trained}


def exact(build_model: BuildModel, weights: Mapping[str, np.ndarray]) -> Model:
    return build_model({name: array.astype(np.float64) for name, array in weights.items()})


def shallow(weights: Mapping[str, np.ndarray], devices: Sequence[Device]) -> Model:
    with tensorflow_strategies.scope():
        model = networks.build("shallow", weights, RECIPES["chexnet"])
    load_weights(model, weights)
    return model


def logits(model: Model, images: np.ndarray) -> np.ndarray:
    return model(_as_tensor(images, model.trainable_variables[0].dtype), training=False).numpy()


def train_forward(model: Model, images: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """In full float32 whatever the run's precision: TF32's rounding would hide a wrong epsilon."""
    tf32 = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    before = dump_weights(model)
    found = model(_as_tensor(images, model.trainable_variables[0].dtype), training=True).numpy()
    after = dump_weights(model)
    load_weights(model, before)
    tf.config.experimental.enable_tensor_float_32_execution(tf32)
    return found, after


def gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    return _split_gradients(model, images, targets, devices)


def rank_gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    """What MultiWorkerMirroredStrategy sums, each loss divided by the global batch."""
    here = rank_info.here()
    assert here is not None, "there is one node"
    return gradients(model, images, targets, [*devices] * here.nodes)


@contextmanager
def seen_by(model: Model) -> Iterator[list[np.ndarray]]:
    """By this process's first device. It must not have been traced before."""
    seen, own = list[np.ndarray](), tensorflow_strategies.own_devices()
    first = "call" if hasattr(model, "call") else "convolution"  # Keras's network as a whole
    compute = getattr(model, first)

    def note(replica: np.ndarray, x: np.ndarray) -> None:
        if replica % own == 0:
            seen.append(x.transpose(0, 3, 1, 2))

    def noting(x: tf.Tensor, *given: Any, **named: Any) -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        if context is not None:  # else nothing is computed
            with tf.device("CPU"):
                replica = context.replica_id_in_sync_group
                tf.numpy_function(note, [replica, tf.cast(x, tf.float32)], [])
        return compute(x, *given, **named)

    setattr(model, first, noting)
    try:
        yield seen
    finally:
        setattr(model, first, compute)


def _as_tensor(images: np.ndarray, dtype: Any) -> tf.Tensor:
    return tf.constant(weight_layout.pictures(images), dtype)


def _split_gradients(
    model: Any,
    images: np.ndarray,
    targets: np.ndarray,
    devices: Sequence[Device],
    *,
    equal_shares: bool = False,
) -> tuple[float, dict[str, np.ndarray]]:
    """Eagerly; with ``equal_shares`` the mean of every replica's own share counts alike."""
    named, count = _trained(model), len(devices)
    watched = list(named.values())
    dtype = watched[0].dtype

    def replica(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, ...]:
        with tf.GradientTape() as tape:
            logits = model(x, training=False)
            loss = tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=logits)
            # Gradients are summed over the replicas, so each divides by the global batch.
            over = tf.size(y) * count if equal_shares else targets.size
            loss = tf.reduce_sum(loss) / tf.cast(over, loss.dtype)
        found = [loss, *tape.gradient(loss, watched)]
        context = tf.distribute.get_replica_context()
        return tuple(context.all_reduce(tf.distribute.ReduceOp.SUM, found))

    x = [_as_tensor(part, dtype) for part in np.array_split(images, count)]
    y = [tf.constant(part, dtype) for part in np.array_split(targets, count)]
    if count == 1:
        with tf.device(devices[0]):
            loss, *found = replica(x[0], y[0])
    else:
        strategy = tensorflow_strategies.over(devices)
        split = (tensorflow_strategies.shares(strategy, parts) for parts in (x, y))
        results = strategy.run(replica, tuple(split))
        loss, *found = (strategy.experimental_local_results(part)[0] for part in results)
    return float(loss), {
        name: weight_layout.first(gradient.numpy())
        for name, gradient in zip(named, found, strict=True)
    }
