"""Computations in TensorFlow for the fairness check and the self-test."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from helpers.frameworks import tensorflow_ranks, tensorflow_strategies, weight_layout
from helpers.frameworks.tensorflow_state import dump_weights, load_weights, trained
from helpers.networks import tensorflow as networks
from helpers.recipe import RECIPES

Device: TypeAlias = str
Model: TypeAlias = tf.Module


def exact(
    build_model: Callable[[Mapping[str, np.ndarray]], Model], weights: Mapping[str, np.ndarray]
) -> Model:
    return build_model({name: array.astype(np.float64) for name, array in weights.items()})


def shallow(weights: Mapping[str, np.ndarray], devices: Sequence[Device]) -> Model:
    with tensorflow_strategies.scope():
        model = networks.build("shallow", weights, RECIPES["chexnet"])
    load_weights(model, weights)
    return model


def logits(model: Model, images: np.ndarray) -> np.ndarray:
    return model(as_tensor(images, model.trainable_variables[0].dtype), training=False).numpy()


def train_forward(model: Model, images: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """In full float32 whatever the run's precision: TF32's rounding would hide a wrong epsilon."""
    before = dump_weights(model)
    with _without_tf32():
        found = model(as_tensor(images, model.trainable_variables[0].dtype), training=True).numpy()
    after = dump_weights(model)
    load_weights(model, before)
    return found, after


def gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    return split_gradients(
        lambda x: model(x, training=False), trained(model), images, targets, devices
    )


def rank_gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    """What MultiWorkerMirroredStrategy sums, each loss divided by the global batch."""
    joined = tensorflow_ranks.joined()
    assert joined is not None, "there is one node"
    return split_gradients(
        lambda x: model(x, training=False), trained(model), images, targets, devices, joined=joined
    )


@contextmanager
def seen_by(model: Model) -> Iterator[list[np.ndarray]]:
    """By this process's first device. It must not have been traced before."""
    seen, convolution = list[np.ndarray](), model.convolution
    own = tensorflow_strategies.own_devices()

    def note(replica: np.ndarray, x: np.ndarray) -> None:
        if replica % own == 0:
            seen.append(x.transpose(0, 3, 1, 2))

    def noting(x: tf.Tensor, *given: Any, **named: Any) -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        replica = 0 if context is None else context.replica_id_in_sync_group
        with tf.device("CPU"):
            tf.numpy_function(note, [replica, tf.cast(x, tf.float32)], [])
        return convolution(x, *given, **named)

    model.convolution = noting
    try:
        yield seen
    finally:
        del model.convolution


@contextmanager
def _without_tf32() -> Iterator[None]:
    """Products of float32 in float32, whatever :func:`configure` allows the run."""
    allowed = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(allowed)


def as_tensor(images: np.ndarray, dtype: Any) -> tf.Tensor:
    """(N, 3, H, W) as a channels-last tensor."""
    return tf.constant(weight_layout.pictures(images), dtype)


def split_gradients(
    forward: Callable[[tf.Tensor], tf.Tensor],
    variables: Mapping[str, Any],
    images: np.ndarray,
    targets: np.ndarray,
    devices: Sequence[Device],
    *,
    equal_shares: bool = False,
    joined: tf.distribute.Strategy | None = None,
) -> tuple[float, dict[str, np.ndarray]]:
    """What ``tf.distribute`` gives for ``forward`` with the batch split over ``devices``, eagerly.

    With ``equal_shares`` every replica takes the mean over its own share and counts alike. A
    strategy that has ``joined`` nodes splits it over the devices of all.
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

    x = [as_tensor(part, dtype) for part in np.array_split(images, count)]
    y = [tf.constant(part, dtype) for part in np.array_split(targets, count)]
    if count == 1:
        with tf.device(devices[0]):
            loss, *found = replica(x[0], y[0])
    else:
        strategy = joined or tensorflow_strategies.over(watched[0], devices)
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
