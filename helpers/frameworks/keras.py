"""The framework-specific helper functions for Keras 3 on the TensorFlow backend.

Specific to it: ``fit`` runs on the devices through ``tf.distribute.MirroredStrategy``. Devices and
losses on them are those of ``helpers.frameworks.tensorflow``. A model is built by
``keras.applications``, its layers have names of their own, and images are channels-last.
"""

import logging
import math
import os
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, TypeAlias

os.environ["KERAS_BACKEND"] = "tensorflow"

from helpers.frameworks import tensorflow as backend  # before Keras: it imports TensorFlow quietly

# isort: split
import keras
import numpy as np
import tensorflow as tf
from keras.src.trainers.data_adapters.generator_data_adapter import GeneratorDataAdapter
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

from helpers.errors import UserError
from helpers.frameworks import precisions, weight_layout
from helpers.frameworks.interface import Seen, Watch, rule_of
from helpers.frameworks.tensorflow import (
    free_memory,
    list_devices,
    queued,
    slowest,
    synchronize,
)
from helpers.networks import custom
from helpers.networks import keras as networks
from helpers.networks.shapes import SHALLOW
from helpers.recipe import RECIPES

Device: TypeAlias = Any
Model: TypeAlias = keras.Model

# Whatever ~/.keras/keras.json says.
keras.config.set_floatx("float32")
keras.config.set_image_data_format("channels_last")

SKIPPED = {
    **precisions.LEFT_TO_PYTORCH,
    "weight decay in the gradient": (
        "Keras's optimisers shrink the weights apart from the gradient (decoupled)"
    ),
    "momentum without the learning rate": (
        "the velocity of Keras's momentum contains the learning rate, so the steps shrink late "
        "when the rate drops"
    ),
}


def versions() -> dict[str, str]:
    return {"keras": keras.__version__, **backend.versions()}


def configure(precision: str, kind: str) -> None:
    backend.configure(precision, kind)
    tf.get_logger().addFilter(_worth_saying)


def gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    """As in ``fit``, every replica takes the mean over its own share, and these are averaged."""
    return backend._split_gradients(
        lambda x: model(x, training=False),
        _trained(model),
        images,
        targets,
        devices,
        equal_shares=True,
    )


def as_loaded(pixels: np.ndarray, targets: np.ndarray, numbers: np.ndarray) -> Any:
    return pixels, targets, numbers


def set_epoch(loader: Any, epoch: int) -> None:
    loader.set_epoch(epoch)


def beside(model: Model) -> AbstractContextManager[Any]:
    strategy = getattr(model.variables[0].value, "distribute_strategy", None)
    return strategy.scope() if strategy else nullcontext()


@contextmanager
def seen_by(model: Model) -> Iterator[list[np.ndarray]]:
    """The graph is changed before it is traced, and notes what the first replica sees."""
    found: list[np.ndarray] = []
    call = model.call

    def note(images: np.ndarray, replica: int) -> np.ndarray:
        if not replica:
            found.append(images.transpose(0, 3, 1, 2))
        return images

    def noting(inputs: Any, training: Any = None, mask: Any = None) -> Any:
        context = tf.distribute.get_replica_context()
        if context is not None:  # else nothing is computed
            given = [inputs, context.replica_id_in_sync_group]
            with tf.device("CPU"):
                noted = tf.numpy_function(note, given, inputs.dtype)
            inputs = tf.ensure_shape(noted, inputs.shape)
        return call(inputs, training=training, mask=mask)

    model.call = noting
    try:
        yield found
    finally:
        model.call = call


class _Steps(keras.callbacks.Callback):
    """Tells a watch of each step of ``fit``, or of ``predict``, on the batches that these took."""

    def __init__(self, watching: Any, *, twice: bool) -> None:
        """``twice``: what is taken before the start, to learn the shapes, is read again."""
        super().__init__()
        self._watching, self._twice = watching, twice
        self._taken = deque[tuple[float, Any]]()

    def take(self, batch: Any) -> Any:
        """Keras takes this batch, and of it the pixels and targets."""
        self._taken.append((time.perf_counter(), batch))
        return tuple(batch[:2])

    def _step(self) -> None:
        if self._taken:
            at, batch = self._taken.popleft()
            self._watching.batch(batch, at)
            self._watching.step()

    def _end(self) -> None:
        self._watching.__exit__(None, None, None)

    # A function for the end of a batch would be given its loss, and so wait for the device.

    def on_train_begin(self, logs: Any = None) -> None:
        if self._twice:
            self._taken.clear()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch:
            self._step()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._step()

    def on_train_end(self, logs: Any = None) -> None:
        self._end()

    on_predict_begin = on_train_begin
    on_predict_batch_begin = on_train_batch_begin

    def on_predict_end(self, logs: Any = None) -> None:
        self._step()
        self._end()


class _WatchedDataset(PyDatasetAdapter):
    """A ``PyDataset`` as ``fit`` reads it, noted by ``callback``; a loop has its batches whole."""

    def __init__(self, batches: keras.utils.PyDataset, watching: Any) -> None:
        super().__init__(batches)
        self.callback = _Steps(watching, twice=True)
        self._take = self.callback.take

    def _standardize_batch(self, batch: Any) -> Any:
        return self._take(batch)

    def __iter__(self) -> Iterator[Any]:
        self._take = tuple
        self.on_epoch_begin()
        yield from self._get_iterator()
        self.on_epoch_end()


class _WatchedBatches(GeneratorDataAdapter):
    """Other batches, as ``fit`` or a loop reads them; ``callback`` notes them."""

    def __init__(self, batches: Iterable[Any], watching: Any) -> None:
        self.callback = _Steps(watching, twice=False)
        self._batches, self._watching = batches, watching

    def get_tf_dataset(self) -> tf.data.Dataset:
        super().__init__(map(self.callback.take, self._batches))  # reads two
        return super().get_tf_dataset()

    def __iter__(self) -> Iterator[Any]:
        for batch in self._batches:
            self._watching.batch(batch, time.perf_counter())
            yield batch
            self._watching.step()
        self._watching.__exit__(None, None, None)


def watched(batches: Iterable[Any], watching: Any) -> Any:
    watching.__enter__()
    if isinstance(batches, keras.utils.PyDataset):
        return _WatchedDataset(batches, watching)
    return _WatchedBatches(batches, watching)


def _trained(model: Model) -> Mapping[str, Any]:
    """The model's trainable variables, TensorFlow's own, by torchvision's names."""
    trainable = {id(variable) for variable in model.trainable_variables}
    return {name: each.value for name, each in _variables(model).items() if id(each) in trainable}


def _worth_saying(record: logging.LogRecord) -> bool:
    """Not that several models were traced: the fairness check makes some."""
    return "tf.function retracing" not in record.msg


def load_weights(model: Model, weights: Mapping[str, np.ndarray]) -> None:
    weight_layout.assign(_variables(model), weights)


def dump_weights(model: Model) -> dict[str, np.ndarray]:
    """On TensorFlow BatchNorm's statistics are each replica's own; these are replica 0's."""
    return {
        name: weight_layout.first(variable.numpy()) for name, variable in _variables(model).items()
    }


def state_of(model: Model, weights: Mapping[str, np.ndarray]) -> Any:
    """For ``set_weights``."""
    if not custom.is_own(model):
        recipe = RECIPES["chexnet"]
        for layer in model.layers:
            if isinstance(layer, keras.layers.BatchNormalization):
                layer.epsilon, layer.momentum = recipe.bn_epsilon, 1 - recipe.bn_momentum
    names = {id(variable): name for name, variable in _variables(model).items()}
    return [weight_layout.last(weights[names[id(each)]]) for each in model.weights]


def load_optimizer(replica: Any, state: Mapping[str, np.ndarray], step: int) -> None:
    """The optimiser counts its steps itself."""
    replica.optimizer.load_own_variables(state)


def dump_optimizer(replica: Any) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    replica.optimizer.save_own_variables(found)
    return {number: np.array(array) for number, array in found.items()}


def _rate(optimizer: Any) -> float:
    """A schedule's of the last step; the optimiser has counted on."""
    rate = optimizer._learning_rate
    if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
        rate = rate(keras.ops.maximum(optimizer.iterations - 1, 0))
    return float(keras.ops.convert_to_numpy(rate))


def watch(replica: Any) -> Watch:
    optimizer = replica.optimizer

    def seen() -> Seen:
        found = {
            what: [float(getattr(optimizer, theirs) or 0)]
            for what, theirs in _CONSTANTS.items()
            if hasattr(optimizer, theirs)
        }
        layers = replica.network._flatten_layers()
        types = {each.compute_dtype for each in layers if isinstance(each, keras.layers.Conv2D)}
        return Seen(
            rule_of(optimizer, getattr(optimizer, "momentum", None)),
            found,
            "/".join(sorted(types)) or None,
            _execution(replica.model),
            weights=sum(math.prod(each.shape) for each in optimizer._trainable_variables),
        )

    def held() -> list[np.ndarray]:
        return weight_layout.copies([*_trained(replica.network).values()][-1])

    return Watch(
        partial(_rate, optimizer), lambda: int(optimizer.iterations.numpy()), seen, held, waits=True
    )


def exact(
    build_model: Callable[[Mapping[str, np.ndarray]], Model], weights: Mapping[str, np.ndarray]
) -> Model:
    before = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64")  # of the input
    keras.config.set_dtype_policy("float64")  # of the layers
    try:
        return build_model(weights)
    finally:
        keras.config.set_floatx(before[0])
        keras.config.set_dtype_policy(before[1])


def shallow(weights: Mapping[str, np.ndarray], devices: Sequence[Device]) -> Model:
    """With float32 weights, the current dtype policy decides the precision of the computation."""
    build = partial(networks.build, SHALLOW, recipe=RECIPES["chexnet"])
    doubles = weights["classifier.bias"].dtype == np.float64
    model = exact(build, weights) if doubles else build(weights)
    load_weights(model, weights)
    return model


def logits(model: Model, images: np.ndarray) -> np.ndarray:
    found = model(_batch(model, images), training=False)
    return keras.ops.convert_to_numpy(found)


def train_forward(model: Model, images: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    before = dump_weights(model)
    found = model(_batch(model, images), training=True)
    after = dump_weights(model)
    load_weights(model, before)
    return keras.ops.convert_to_numpy(found), after


_UNUSED = ("amsgrad", "nesterov", "use_ema", "clipnorm", "clipvalue", "global_clipnorm")
"""Options of Keras's optimisers that no recipe uses."""
_CONSTANTS = {"weight decay": "weight_decay", "momentum": "momentum", "epsilon": "epsilon"}
_CONSTANTS |= {"beta 1": "beta_1", "beta 2": "beta_2"} | {name: name for name in _UNUSED}

PARTS = {
    "kernel": "weight",
    "gamma": "weight",
    "beta": "bias",
    "bias": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}
"""Keras's names of what a layer holds, and torchvision's."""


def _variables(model: Model) -> dict[str, keras.Variable]:
    """The model's variables by torchvision's names; those of a custom network by Keras's."""
    if custom.is_own(model):
        return _by_path(model)
    return {
        f"{_layer(layer.name)}.{PARTS[variable.name]}": variable
        for layer in model.layers
        for variable in layer.variables
    }


def _batch(model: Model, images: np.ndarray) -> Any:
    """(N, 3, H, W) as the channels-last tensor that the model is given."""
    return keras.ops.convert_to_tensor(weight_layout.pictures(images), model.compute_dtype)


def _by_path(model: Model) -> dict[str, keras.Variable]:
    """The model's variables by their paths, ``conv2d_1/kernel``, numbered anew in each model."""
    found, names = {}, {}
    taken: Counter[str] = Counter()
    for variable in model.variables:
        layer, _, part = variable.path.rpartition("/")
        if layer not in names:
            kind = re.sub(r"_\d+(?=/|$)", "", layer)
            names[layer] = f"{kind}_{taken[kind]}" if taken[kind] else kind
            taken[kind] += 1
        found[f"{names[layer]}/{part}"] = variable
    if len(found) < len(model.variables):
        raise UserError("two layers of your network have the same name: give each another name")
    return found


def _execution(model: Model) -> str:
    if model.run_eagerly:
        return "eager"
    parts = (getattr(part, "_jit_compile", False) for part in vars(type(model)).values())
    return "compiled (tf.function, XLA)" if any(parts) else "graph (tf.function)"


def _layer(name: str) -> str:
    """torchvision's name of a layer of ``keras.applications.DenseNet121``.

    Keras counts the stem as stage 1, so its conv2_block3_1_conv is denseblock1.denselayer3.conv1.
    """
    stem = {
        "conv1_conv": "features.conv0",
        "conv1_bn": "features.norm0",
        "bn": "features.norm5",
        "predictions": "classifier",
    }
    if name in stem:
        return stem[name]
    stage, *rest = name.split("_")
    if stage.startswith("pool"):
        kind = {"bn": "norm", "conv": "conv"}[rest[0]]
        return f"features.transition{int(stage[4:]) - 1}.{kind}"
    if not stage.startswith("conv") or len(rest) != 3:
        return name.replace("_", ".")  # of a ResNet
    block, number, kind = rest
    part = f"norm{int(number) + 1}" if kind == "bn" else f"conv{number}"
    return f"features.denseblock{int(stage[4:]) - 1}.denselayer{block[5:]}.{part}"
