"""The framework-specific helper functions for TensorFlow without Keras.

Peculiar to TensorFlow: one process drives all devices of a node through ``tf.distribute``, so
``devices`` holds all of them; how nodes are joined is in ``tensorflow_ranks``. Images and weights
are channels-last: convolutions are HWIO here, OIHW in the canonical layout, and the classifier is
transposed. A model is a ``tf.Module`` called as ``model(images, training=...)`` whose variables
bear torchvision's names. The same seed gives the same bits on CPUs, from process to process too; on
GPUs it need not.

``helpers.frameworks.keras`` runs on TensorFlow and takes from here what is the same.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Semaphore
from typing import Any, TypeAlias

import numpy as np

from helpers.errors import UserError
from helpers.frameworks import (
    cpu_cores,
    import_messages,
    memory,
    precisions,
    tensorflow_ranks,
    weight_layout,
)
from helpers.frameworks import devices as device_helpers
from helpers.frameworks.interface import Seen, Watch
from helpers.networks import custom
from helpers.networks.weights import under
from helpers.recipe import RECIPES

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # errors only, of those that heed it
with import_messages.dropped("before absl::InitializeLog", "oneDNN custom operations are on"):
    import tensorflow as tf

NAME = "TensorFlow"
KERNEL = "tensorflow"

Device: TypeAlias = str
Model: TypeAlias = tf.Module

# What TensorFlow cannot do, and why.
SKIPPED = {
    **precisions.ON_GPUS_ONLY,
    "training in float64": "fused_batch_norm computes in float32 and in 16 bits only",
    "the same bits from the same seed on GPUs": (
        "TensorFlow's operations may add in another order each time, on GPUs above all; "
        "tf.config.experimental.enable_op_determinism would end that, at a price in speed, says "
        "its documentation"
    ),
}

_LEFT_TO_CUDA = 2048
"""MiB of a shared GPU that stay free for CUDA, cuDNN and cuBLAS."""
_LEAST_PART = 512
"""MiB, without which a replica has no room for its weights and their gradients and moments."""

_STRATEGIES: dict[int, tf.distribute.Strategy] = {}  # by the number of devices
_apply_debug_options = tf.data.Dataset._apply_debug_options  # TensorFlow's own
# More than steps are ever queued, so that each has a thread to wait for it at once.
_WAITING = ThreadPoolExecutor(64, "waiting for a device")


def versions() -> dict[str, str]:
    found = {"tensorflow": tf.__version__}
    build = tf.sysconfig.get_build_info()
    names = {"cuda": "cuda_version", "cudnn": "cudnn_version"}
    return found | {name: str(build[key]) for name, key in names.items() if build.get(key)}


def list_devices(kind: str, count: int, gpus: int | None = None) -> list[Device]:
    """Call it before TensorFlow computes anything: the devices cannot change afterwards
    (RuntimeError). TensorFlow then sees ``count`` GPUs and takes their memory as it is needed.
    """
    physical = tf.config.list_physical_devices(kind.upper())
    if kind == "gpu":
        tf.config.set_visible_devices(physical[: gpus or count], "GPU")
        if gpus and gpus < count:
            return _logical_gpus(physical[:gpus], count)
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


def _logical_gpus(physical: Sequence[Any], count: int) -> list[Device]:
    """``count`` logical devices, as many on each GPU, with equal parts of its memory.

    Memory that grows as it is needed is not to be had with them.
    """
    gpus, each = len(physical), count // len(physical)
    known = tf.config.get_logical_device_configuration(physical[0])
    if len(known or []) != each:  # else the cell is run again, and less of the memory is free
        free = memory.free_on_gpus([gpu.uuid for gpu in device_helpers.used(gpus)])
        part = (free - _LEFT_TO_CUDA) // each
        if part < _LEAST_PART:
            raise UserError(
                f"devices {count}: {free} MiB of GPU memory are free, too little for {each} "
                "replicas that share them; ask for fewer"
            )
        for gpu in physical:
            parts = [tf.config.LogicalDeviceConfiguration(memory_limit=part)] * each
            tf.config.set_logical_device_configuration(gpu, parts)
    # TensorFlow numbers all on the first GPU before those on the second.
    return [f"GPU:{i % gpus * each + i // gpus}" for i in range(count)]


def configure(precision: str, kind: str) -> None:
    precisions.check(precision, kind, SKIPPED)
    # By default TensorFlow rounds convolutions and matrix products on a GPU to TF32.
    tf.config.experimental.enable_tensor_float_32_execution(precision != "fp32")
    tf.data.Dataset._apply_debug_options = _without_autotuning
    tf.get_logger().addFilter(_worth_saying)
    _with_keys_of_its_own()
    if kind == "cpu":  # where TensorFlow has no memory pool of its own; else a third of a step
        memory.keep_freed()


def synchronize(devices: Sequence[Device]) -> None:
    for device in devices:
        if device.startswith("GPU"):
            with tf.device(device):
                tf.zeros(()).numpy()  # a stream works in order, so this comes last


def completion(result: Any) -> Callable[[], None] | None:
    """``result`` is a tensor or any structure of tensors. Its copy to the host, in a thread, comes
    after the work that is queued when it begins. So this function returns only once the copy has
    begun; otherwise the next step might be queued first and be waited for as well.
    """
    on_gpus = [part for part in tf.nest.flatten(result) if "GPU" in part.device]
    if not on_gpus:
        return None
    begun = Semaphore(0)

    def copy_to_host(part: Any) -> None:
        begun.release()  # this thread keeps Python's lock until TensorFlow has the order
        part.numpy()

    copies = [_WAITING.submit(copy_to_host, part) for part in on_gpus]
    for _ in copies:
        begun.acquire()

    def wait() -> None:
        for copy in copies:
            copy.result()

    return wait


def load_weights(model: Model, weights: Mapping[str, np.ndarray]) -> None:
    weight_layout.assign(_named(model), weights)


def dump_weights(model: Model) -> dict[str, np.ndarray]:
    """BatchNorm's statistics are each replica's own; these are replica 0's."""
    return {name: weight_layout.first(v.numpy()) for name, v in _named(model).items()}


def load_optimizer(
    model: Model, optimizer: Any, state: Mapping[str, np.ndarray], scaler: Any = None
) -> None:
    """The factor of fp16's loss is the optimiser's own, so there is no ``scaler``."""
    if not state:
        return
    for moment, variables in _moments(model, optimizer).items():
        weight_layout.assign(variables, under(f"{moment}/", state))
    optimizer.step.assign(float(state["step"]))
    optimizer.loss_scale.assign(float(state["scale"]))


def dump_optimizer(model: Model, optimizer: Any, scaler: Any = None) -> dict[str, np.ndarray]:
    """The factor of fp16's loss stays 1 in other precisions."""
    found = {
        f"{moment}/{name}": weight_layout.first(variable.numpy())
        for moment, variables in _moments(model, optimizer).items()
        for name, variable in variables.items()
    }
    scale = np.array(optimizer.loss_scale.numpy())
    return found | {"step": np.array(int(optimizer.step.numpy())), "scale": scale}


def learning_rate(optimizer: Any) -> float:
    return float(optimizer.learning_rate.numpy())


def watch(replica: Any) -> Watch:
    optimizer = replica.optimizer
    before = int(optimizer.step.numpy())

    def seen() -> Seen:
        rule, decay = optimizer.rule, optimizer.rule.weight_decay
        name = type(optimizer).__name__.lower()
        found = {"weight decay": (decay, decay)}
        if name == "adam":
            numbers = {"beta 1": optimizer.betas[0], "beta 2": optimizer.betas[1]}
            numbers["epsilon"] = optimizer.epsilon
            found |= {what: (value, value) for what, value in numbers.items()}
        elif rule.momentum:
            name, found["momentum"] = "momentum", (rule.momentum, rule.momentum)
        graphs = [each.graph for each in replica.train_step._list_all_concrete_functions()]
        operations = (one for graph in graphs for one in graph.get_operations())
        types = {one.get_attr("T").name for one in operations if one.type == "Conv2D"}
        return Seen(
            name,
            found,
            int(optimizer.step.numpy()) - before,
            "/".join(sorted(types)) or None,
            _execution(replica),
            tf.config.experimental.tensor_float_32_execution_enabled(),
            weights=sum(each.shape.num_elements() for each in optimizer.parameters),
        )

    return Watch(partial(learning_rate, optimizer), seen, waits=True)


def _execution(replica: Any) -> str:
    if tf.config.functions_run_eagerly():
        return "eager"
    compiled = replica.train_step._jit_compile
    return "compiled (tf.function, XLA)" if compiled else "graph (tf.function)"


def exact(
    build_model: Callable[[Mapping[str, np.ndarray]], Model], weights: Mapping[str, np.ndarray]
) -> Model:
    return build_model({name: array.astype(np.float64) for name, array in weights.items()})


def shallow(weights: Mapping[str, np.ndarray], devices: Sequence[Device]) -> Model:
    model = _Shallow(weights)
    load_weights(model, weights)
    return model


def logits(model: Model, images: np.ndarray) -> np.ndarray:
    return model(_batch(images, model.trainable_variables[0].dtype), training=False).numpy()


def train_forward(model: Model, images: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """In full float32 whatever the run's precision: TF32's rounding, which grows through 121 layers
    to 5e-3 (emulated), would hide a wrong epsilon (5e-5).
    """
    before = dump_weights(model)
    with _without_tf32():
        found = model(_batch(images, model.trainable_variables[0].dtype), training=True).numpy()
    after = dump_weights(model)
    load_weights(model, before)
    return found, after


def gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    return _gradients(lambda x: model(x, training=False), _trained(model), images, targets, devices)


def rank_gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    """What MultiWorkerMirroredStrategy sums, each loss divided by the global batch."""
    joined = tensorflow_ranks.joined()
    assert joined is not None, "there is one node"
    return _gradients(
        lambda x: model(x, training=False), _trained(model), images, targets, devices, joined=joined
    )


def through_layer(
    layer: str, arrays: Mapping[str, np.ndarray], device: Device
) -> dict[str, np.ndarray]:
    weights = arrays.keys() - {"images", "gradient"}
    with tf.device(device), tf.GradientTape() as tape:
        given = {name: tf.constant(weight_layout.last(arrays[name])) for name in sorted(weights)}
        given["images"] = _batch(arrays["images"], tf.float32)
        tape.watch(given)
        if layer == "convolution":
            output = tf.nn.conv2d(given["images"], given["weight"], 1, "SAME")
        elif layer == "BatchNorm":
            output, _, _ = tf.compat.v1.nn.fused_batch_norm(
                given["images"],
                given["scale"],
                given["offset"],
                epsilon=RECIPES["chexnet"].bn_epsilon,
            )
        else:
            output = tf.nn.avg_pool2d(
                tf.nn.max_pool2d(given["images"], 3, 2, "VALID"), 2, 2, "VALID"
            )
        found = tape.gradient(output, given, _batch(arrays["gradient"], tf.float32))
    pictures = {"output": output, "images": found.pop("images")}
    return {
        **{name: tensor.numpy().transpose((0, 3, 1, 2)) for name, tensor in pictures.items()},
        **{name: weight_layout.first(tensor.numpy()) for name, tensor in found.items()},
    }


def matrix_product(size: int, dtype: str, device: Device) -> Callable[[], None]:
    with tf.device(device):
        row = tf.linspace(-1.0, 1.0, size)
        matrix = tf.cast(row[:, None] * row, dtype)

    def multiply() -> None:
        with tf.device(device):
            tf.linalg.matmul(matrix, matrix)
        synchronize([device])

    return multiply


def all_reduced(shares: Sequence[np.ndarray], devices: Sequence[Device]) -> list[np.ndarray]:
    """With ``tf.distribute``, which uses NCCL between GPUs."""
    strategy = tensorflow_ranks.joined() or _strategy(None, devices)
    values = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(shares[context.replica_id_in_sync_group % len(devices)])
    )

    def replica(share: tf.Tensor) -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        here = tf.identity(share)  # a single device is given its share without a place
        return context.all_reduce(tf.distribute.ReduceOp.SUM, here)

    @tf.function
    def reduce(values: Any) -> Any:
        return strategy.run(replica, (values,))

    found = strategy.experimental_local_results(reduce(values))
    return [tensor.numpy() for tensor in found]


class DeviceLosses:
    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices = list(devices)
        self._sums = []
        for device in devices:
            with tf.device(device):
                self._sums.append(tf.zeros(2, tf.float64))

    def add(self, position: int, loss: Any, images: int) -> None:
        with tf.device(self._devices[position]):
            count = tf.cast(images, tf.float64)
            self._sums[position] += tf.stack([tf.cast(loss, tf.float64) * count, count])

    def mean(self) -> float:
        total = self._gathered(np.sum([part.numpy() for part in self._sums], axis=0)).sum(axis=0)
        return float(total[0] / total[1])

    def _gathered(self, own: np.ndarray) -> np.ndarray:
        """The arrays of all processes."""
        return tensorflow_ranks.gathered(own)


def slowest(seconds: float, devices: Sequence[Device]) -> float:
    """Each node has one process."""
    return float(tensorflow_ranks.gathered(np.array(seconds)).max())


@contextmanager
def _without_tf32() -> Iterator[None]:
    """Products of float32 in float32, whatever :func:`configure` allows the run."""
    allowed = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(allowed)


def _worth_saying(record: logging.LogRecord) -> bool:
    """Not to which devices a strategy reduces, nor that it is slow eagerly (:func:`gradients`)."""
    return record.levelno > logging.INFO and "eagerly has significant" not in record.msg


def _without_autotuning(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """What is iterated in place of ``dataset``: the same, with no thread that tunes it.

    Such a thread wakes ever more rarely, after a minute in the end, and an iterator that ends or
    is dropped waits for it. It is called, but before TensorFlow notes that it has been: a thread
    that wakes at once finds nothing, sleeps its time out, and the program stands idle. Options of
    a data set do not reach those that ``tf.distribute`` iterates on each device; through
    ``_apply_debug_options``, where TensorFlow's debug mode does the same, go all.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return _apply_debug_options(dataset).with_options(options)


class _Shallow(tf.Module):
    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        super().__init__()
        self.parts = {
            name: tf.Variable(
                tf.zeros_like(weight_layout.last(array)), "running" not in name, name=name
            )
            for name, array in weights.items()
        }

    def __call__(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        recipe = RECIPES["chexnet"]
        around = [[0, 0], [3, 3], [3, 3], [0, 0]]
        # In the dtype of what it is given, as the notebook's model.
        x = tf.nn.conv2d(x, tf.cast(self.parts["features.conv0.weight"], x.dtype), 2, around)
        names = ("weight", "bias", "running_mean", "running_var")
        norm = [self.parts[f"features.norm0.{part}"] for part in names]
        if training:
            x, mean, variance = tf.compat.v1.nn.fused_batch_norm(
                x, *norm, recipe.bn_epsilon, exponential_avg_factor=recipe.bn_momentum
            )
            norm[2].assign(mean)
            norm[3].assign(variance)
        else:
            scale, offset, mean, variance = norm
            x = tf.nn.batch_normalization(x, mean, variance, offset, scale, recipe.bn_epsilon)
        weight, bias = (self.parts[f"classifier.{part}"] for part in ("weight", "bias"))
        x = tf.reduce_mean(tf.cast(tf.nn.relu(x), weight.dtype), axis=[1, 2])
        return tf.linalg.matmul(x, weight) + bias


def _moments(model: Model, optimizer: Any) -> dict[str, dict[str, tf.Variable]]:
    """The variables in which the notebook's optimiser keeps its moments, by the weights' names."""
    known = {id(variable): name for name, variable in _named(model).items()}
    names, rule = [known[id(parameter)] for parameter in optimizer.parameters], optimizer.rule
    lists = zip(rule.moments, optimizer.moments, strict=False)  # what plain SGD has is nothing
    return {moment: dict(zip(names, found, strict=True)) for moment, found in lists}


def _named(model: Model) -> dict[str, tf.Variable]:
    """The model's variables by their names, torchvision's.

    Those of a custom network by their paths, ``layers.0.kernel``, because many share a name.
    """
    if custom.is_own(model):
        found = model._flatten(predicate=lambda part: isinstance(part, tf.Variable), with_path=True)
        return {".".join(map(str, path)): variable for path, variable in found}
    return {variable.name.removesuffix(":0"): variable for variable in model.variables}


def _trained(model: Model) -> dict[str, tf.Variable]:
    return {name: variable for name, variable in _named(model).items() if variable.trainable}


def _batch(images: np.ndarray, dtype: Any) -> tf.Tensor:
    """(N, 3, H, W) as a channels-last tensor."""
    return tf.constant(weight_layout.pictures(images), dtype)


def _gradients(
    forward: Callable[[tf.Tensor], tf.Tensor],
    variables: Mapping[str, Any],
    images: np.ndarray,
    targets: np.ndarray,
    devices: Sequence[Device],
    *,
    equal_shares: bool = False,
    joined: tf.distribute.Strategy | None = None,
) -> tuple[float, dict[str, np.ndarray]]:
    """What ``tf.distribute`` gives for ``forward`` with the batch split over ``devices``.

    With ``equal_shares`` every replica takes the mean over its own share and counts alike. A
    strategy that has ``joined`` nodes splits it over the devices of all.

    Runs eagerly: tracing DenseNet121 takes longer than computing it this once.
    """
    watched = list(variables.values())
    dtype = watched[0].dtype
    count = len(devices) if joined is None else joined.num_replicas_in_sync

    def replica(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            loss = tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=forward(x))
            # Gradients are summed over the replicas, so each divides by the global batch.
            over = tf.size(y) * count if equal_shares else targets.size
            loss = tf.reduce_sum(loss) / tf.cast(over, loss.dtype)
        found = [loss, *tape.gradient(loss, watched)]
        context = tf.distribute.get_replica_context()
        return tuple(context.all_reduce(tf.distribute.ReduceOp.SUM, found))

    x = [_batch(part, dtype) for part in np.array_split(images, count)]
    y = [tf.constant(part, dtype) for part in np.array_split(targets, count)]
    if count == 1:
        with tf.device(devices[0]):
            loss, *found = replica(x[0], y[0])
    else:
        strategy = joined or _strategy(watched[0], devices)
        shares = [
            strategy.experimental_distribute_values_from_function(
                lambda context, parts=parts: parts[context.replica_id_in_sync_group]
            )
            for parts in (x, y)
        ]
        results = strategy.run(replica, shares)
        loss, *found = (strategy.experimental_local_results(part)[0].numpy() for part in results)
    return float(loss), {
        name: weight_layout.first(np.asarray(gradient))
        for name, gradient in zip(variables, found, strict=True)
    }


def _strategy(variable: Any, devices: Sequence[Device]) -> tf.distribute.Strategy:
    """The strategy that mirrors ``variable`` over ``devices``, else one used on as many before."""
    held = getattr(variable, "distribute_strategy", None)
    if held is not None and held.num_replicas_in_sync == len(devices):
        _STRATEGIES[len(devices)] = held
    elif len(devices) not in _STRATEGIES:
        # NCCL refuses two replicas on one GPU, which a notebook's strategy knows too.
        seen = tf.config.get_visible_devices("GPU")
        shared = devices[0].startswith("GPU") and len(seen) < len(devices)
        reduction = tf.distribute.ReductionToOneDevice() if shared else None
        _with_keys_of_its_own()
        _STRATEGIES[len(devices)] = tf.distribute.MirroredStrategy(list(devices), reduction)
    return _STRATEGIES[len(devices)]


def _with_keys_of_its_own() -> None:
    """The next MirroredStrategy of this process takes no other's all-reduce for its own.

    All number theirs from the same key on: a notebook that is run again in its kernel, with
    another network, would end with "Shape mismatch in the collective instance". TensorFlow's own
    tests (``strategy_combinations.py``) set its strategies apart in this way.
    """
    tf.distribute.MirroredStrategy._collective_key_base += 100_000
