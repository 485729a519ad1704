"""The framework-specific helper functions for Keras 3 on the TensorFlow backend.

Specific to it: ``fit`` runs on the devices through ``tf.distribute.MirroredStrategy``. Devices and
losses on them are those of ``helpers.frameworks.tensorflow``, models and their weights those of
``keras_models``.
"""

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"

from helpers.frameworks import tensorflow as backend  # before Keras: it imports TensorFlow quietly

# isort: split
import keras
import numpy as np
import tensorflow as tf
from keras.src.trainers.data_adapters.generator_data_adapter import GeneratorDataAdapter
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

from helpers.frameworks import keras_models as models
from helpers.frameworks import precisions
from helpers.frameworks.interface import Watching
from helpers.frameworks.keras_models import *
from helpers.frameworks.tensorflow import (
    free_memory,
    list_devices,
    queued,
    slowest,
    synchronize,
)

KERNEL = "tensorflow"

# What Keras cannot do, and why.
SKIPPED = {
    **{
        what: backend.SKIPPED[what]
        for what in ("tf32 on CPUs", "the same bits from the same seed on GPUs")
    },
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
    return backend.split_gradients(
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


def set_step(replica: Any, step: int) -> None:
    """The optimiser counts its steps itself, and has its count back with its state."""


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

    def __init__(self, watching: Watching, *, twice: bool) -> None:
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

    def __init__(self, batches: keras.utils.PyDataset, watching: Watching) -> None:
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

    def __init__(self, batches: Iterable[Any], watching: Watching) -> None:
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


def watched(batches: Iterable[Any], watching: Watching) -> Any:
    watching.__enter__()
    if isinstance(batches, keras.utils.PyDataset):
        return _WatchedDataset(batches, watching)
    return _WatchedBatches(batches, watching)


def _trained(model: Model) -> Mapping[str, Any]:
    """The model's trainable variables, TensorFlow's own, by torchvision's names."""
    return {name: variable.value for name, variable in models.trained(model).items()}


def _worth_saying(record: logging.LogRecord) -> bool:
    """Not that several models were traced: the fairness check makes some."""
    return "tf.function retracing" not in record.msg
