"""The framework-specific helper functions for Keras 3 on the TensorFlow backend.

``fit`` runs on the devices through ``tf.distribute.MirroredStrategy``.
"""

import math
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

from helpers.frameworks import libraries, tensorflow_strategies
from helpers.frameworks.interface import BuildModel, Seen, Watch, rule_of
from helpers.frameworks.tensorflow import *
from helpers.networks import custom
from helpers.networks import keras as networks
from helpers.networks.shapes import SHALLOW, shapes
from helpers.recipe import RECIPES

Model: TypeAlias = keras.Model  # type: ignore[misc]

# Whatever ~/.keras/keras.json says.
keras.config.set_floatx("float32")
keras.config.set_image_data_format("channels_last")

SKIPPED = {
    **libraries.LEFT_TO_PYTORCH,
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


def gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    """As in ``fit``, every replica takes the mean over its own share, and these are averaged."""
    return backend._split_gradients(model, images, targets, devices, equal_shares=True)


def as_loaded(pixels: np.ndarray, targets: np.ndarray, numbers: np.ndarray) -> Any:
    return pixels, targets, numbers


def set_epoch(loader: Any, epoch: int) -> None:
    loader.set_epoch(epoch)


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

    # A function for the end of a batch would be given its loss, and so wait for the device.

    def on_train_begin(self, logs: Any = None) -> None:
        if self._twice:
            self._taken.clear()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch:
            self._step()

    def on_train_end(self, logs: Any = None) -> None:
        self._step()
        self._watching.__exit__(None, None, None)

    on_predict_begin, on_predict_end = on_train_begin, on_train_end
    on_predict_batch_begin = on_train_batch_begin


class _WatchedDataset(PyDatasetAdapter):
    """A ``PyDataset`` as ``fit`` reads it, noted by ``callback``; a loop has its batches whole."""

    def __init__(self, batches: keras.utils.PyDataset, watching: Any) -> None:
        super().__init__(batches)
        self.callback = _Steps(watching, twice=True)
        self._standardize_batch = self.callback.take

    def __iter__(self) -> Iterator[Any]:
        return PyDatasetAdapter(self.py_dataset)._get_iterator()


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
    dataset = isinstance(batches, keras.utils.PyDataset)
    return (_WatchedDataset if dataset else _WatchedBatches)(batches, watching)


def state_of(model: Model, weights: Mapping[str, np.ndarray]) -> Any:
    """For ``set_weights``."""
    if not custom.is_own(model):
        recipe = RECIPES["chexnet"]
        for layer in model.layers:
            if isinstance(layer, keras.layers.BatchNormalization):
                layer.epsilon, layer.momentum = recipe.bn_epsilon, 1 - recipe.bn_momentum
    tensorflow_strategies.note(each.value for each in model.variables)
    return backend._in_order(model.weights, _variables(model), weights)


def load_optimizer(replica: Any, state: Mapping[str, np.ndarray], step: int) -> None:
    """The optimiser counts its steps itself."""
    replica.optimizer.load_own_variables(state)


def dump_optimizer(replica: Any) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    replica.optimizer.save_own_variables(found)
    return {number: np.array(array) for number, array in found.items()}


def watch(replica: Any) -> Watch:
    optimizer = replica.optimizer

    def rate() -> float:
        found = optimizer._learning_rate
        if isinstance(found, keras.optimizers.schedules.LearningRateSchedule):
            found = found(keras.ops.maximum(optimizer.iterations - 1, 0))  # it has counted on
        return float(keras.ops.convert_to_numpy(found))

    def seen() -> Seen:
        found = {
            what: [float(getattr(optimizer, theirs) or 0)]
            for what, theirs in _CONSTANTS.items()
            if hasattr(optimizer, theirs)
        }
        layers = replica.network._flatten_layers()
        types = {each.compute_dtype for each in layers if isinstance(each, keras.layers.Conv2D)}
        parts = vars(type(replica.model)).values()
        compiled = any(getattr(part, "_jit_compile", False) for part in parts)
        execution = "compiled (tf.function, XLA)" if compiled else "graph (tf.function)"
        return Seen(
            rule_of(optimizer, getattr(optimizer, "momentum", None)),
            found,
            "/".join(sorted(types)) or None,
            "eager" if replica.model.run_eagerly else execution,
            weights=sum(math.prod(each.shape) for each in optimizer._trainable_variables),
        )

    return Watch(
        rate,
        lambda: int(optimizer.iterations.numpy()),
        seen,
        lambda: backend._copies([*backend._trained(replica.network).values()][-1].value),
        waits=True,
    )


def exact(build_model: BuildModel, weights: Mapping[str, np.ndarray]) -> Model:
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
    with tensorflow_strategies.scope():
        model = exact(build, weights) if doubles else build(weights)
    load_weights(model, weights)
    return model


_UNUSED = ("amsgrad", "nesterov", "use_ema", "clipnorm", "clipvalue", "global_clipnorm")
"""Options of Keras's optimisers that no recipe uses."""
_CONSTANTS = {"weight decay": "weight_decay", "momentum": "momentum", "epsilon": "epsilon"}
_CONSTANTS |= {"beta 1": "beta_1", "beta 2": "beta_2"} | {name: name for name in _UNUSED}


@backend._named.register
def _variables(model: keras.Model) -> dict[str, keras.Variable]:
    """The model's variables by torchvision's names; those of a custom network by their numbers."""
    if custom.is_own(model):
        return {f"{k}/{variable.name}": variable for k, variable in enumerate(model.variables)}
    held = [variable for layer in model.layers for variable in layer.variables]
    if model.layers[-1].name == "predictions":  # keras.applications builds in torchvision's order
        return dict(zip(shapes("densenet121"), held, strict=True))
    parts = {"kernel": "weight", "gamma": "weight", "beta": "bias"}
    parts |= {"moving_mean": "running_mean", "moving_variance": "running_var"}
    return {
        f"{layer.name.replace('_', '.')}.{parts.get(each.name, each.name)}": each
        for layer in model.layers
        for each in layer.variables
    }
