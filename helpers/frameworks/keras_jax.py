"""The framework-specific helper functions for Keras 3 on the JAX backend.

Peculiar to it: ``fit`` compiles one step for all devices, and ``keras.distribution.DataParallel``
lays each batch out over them, so XLA splits what is written as for one device. BatchNorm therefore
normalises by the statistics of the global batch. Over several nodes (``keras_jax_ranks``) these are
the devices of all. Devices and losses on them are those of ``helpers.frameworks.jax``, models and
their weights those of ``keras_models``. Keras computes in float64 only inside ``jax.enable_x64``.
What the fairness check computes a few times is compiled by itself, and not optimised. The same seed
gives the same bits on CPUs.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from helpers.frameworks import jax as backend
from helpers.frameworks import jax_ranks, weight_layout
from helpers.frameworks import keras_models as models
from helpers.frameworks.jax import (
    DeviceLosses,
    all_reduced,
    configure,
    list_devices,
    matrix_product,
    peak_bytes,
    slowest,
    synchronize,
    through_layer,
)
from helpers.frameworks.keras_models import *

KERNEL = "jax"

# What Keras cannot do on JAX, and why.
SKIPPED = dict(backend.SKIPPED)


def versions() -> dict[str, str]:
    unused = ("flax", "optax", "grain")
    found = {name: said for name, said in backend.versions().items() if name not in unused}
    return {"keras": keras.__version__, **found}


def completion(result: Any) -> Callable[[], None] | None:
    """On CPU devices it has when this returns. They share XLA's few threads, and a step whose
    all-reduce waits for one that other queued work holds may wait for ever: ``fit`` stood still at
    the end of an epoch, on two devices and two busy cores.
    """
    if all(device.platform == "cpu" for device in jax.tree.leaves(result)[0].devices()):
        jax.block_until_ready(result)
    return backend.completion(result)


def exact(
    build_model: Callable[[Mapping[str, np.ndarray]], Model], weights: Mapping[str, np.ndarray]
) -> Model:
    with jax.enable_x64(True):
        return models.exact(build_model, weights)


def shallow(weights: Mapping[str, np.ndarray], devices: Sequence[Device]) -> Model:
    with jax.enable_x64(weights["classifier.bias"].dtype == np.float64):
        return models.shallow(weights, devices)


def logits(model: Model, images: np.ndarray) -> np.ndarray:
    with _as_weights(model):
        return _forward(model, images, training=False)[0]


def train_forward(model: Model, images: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """In full float32 whatever the run's precision: TF32's rounding would hide a wrong epsilon."""
    names = {id(variable): name for name, variable in models.variables(model).items()}
    with _as_weights(model), jax.default_matmul_precision("float32"):
        found, rest = _forward(model, images, training=True)
        changed = zip(model.non_trainable_variables, rest, strict=True)
        after = {names[id(each)]: weight_layout.first(np.array(new)) for each, new in changed}
        return found, dump_weights(model) | after


def gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    """As in ``fit``, written as for one device: XLA splits it by where the images lie."""
    order, counts = backend._equal_shares(len(images), len(devices))
    weights = counts / len(images)
    mesh = Mesh(np.array(devices), ("batch",))
    everywhere, shared = NamedSharding(mesh, P()), NamedSharding(mesh, P("batch"))

    def loss_of(trained: Any, rest: Any, x: Any, y: Any, weights: Any) -> jax.Array:
        output, _ = model.stateless_call(trained, rest, x, training=False)
        each = keras.ops.binary_crossentropy(y, output, from_logits=True).mean(axis=1)
        return (each * weights).sum()

    with _as_weights(model) as dtype:
        held = jax.tree.map(partial(backend._cut, everywhere), _values(model))
        batch = weight_layout.pictures(images[order]), targets[order], weights
        split = [backend._cut(shared, np.asarray(part, dtype)) for part in batch]
        step = jax.jit(
            jax.value_and_grad(loss_of), out_shardings=everywhere, compiler_options=backend._ONCE
        )
        loss, found = step(*held, *split)
        names = {id(variable): name for name, variable in models.trained(model).items()}
        pairs = zip(model.trainable_variables, found, strict=True)
        return float(loss), {names[id(v)]: weight_layout.first(np.array(each)) for v, each in pairs}


def rank_gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    """As :func:`gradients`, on the devices of all ranks."""
    return gradients(model, images, targets, jax_ranks.all_devices(devices))


@contextmanager
def _as_weights(model: Model) -> Iterator[str]:
    """The dtype of a model's weights; inside JAX computes in it, and not in 32 bits for 64."""
    dtype = model.trainable_variables[0].dtype
    with jax.enable_x64(dtype == "float64"), models.as_wide_as(dtype):
        yield dtype


def _values(model: Model) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """What the model holds, on the host: what is trained, and the rest."""
    parts = model.trainable_variables, model.non_trainable_variables
    trained, rest = ([np.array(variable.value) for variable in part] for part in parts)
    return trained, rest


def _forward(model: Model, images: np.ndarray, *, training: bool) -> tuple[np.ndarray, list[Any]]:
    """The logits of one device, and what is not trained as it is afterwards."""

    def call(trained: Any, rest: Any, x: Any) -> Any:
        return model.stateless_call(trained, rest, x, training=training)

    x = jnp.asarray(weight_layout.pictures(images), model.compute_dtype)
    found, rest = jax.jit(call, compiler_options=backend._ONCE)(*_values(model), x)
    return np.array(found), rest
