"""Train with plain JAX: this project's DenseNet121 under ``jax.jit``, and Optax's Adam."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from helpers.frameworks import jax as framework
from helpers.networks import jax as networks
from helpers.networks import weights
from helpers.recipe import RECIPES


def make(pixels: int, batch: int) -> Callable[[int], None]:
    arrays = weights.seeded()
    model = networks.build("densenet121", arrays, RECIPES["chexnet"])
    framework.load_weights(model, arrays)
    model.train()
    graph, params, rest = nnx.split(model, nnx.Param, ...)
    optimizer = optax.adam(1e-4)
    images = jax.random.normal(jax.random.key(0), (batch, pixels, pixels, 3))
    targets = jnp.zeros((batch, 14))

    def loss_of(params, rest):  # type: ignore[no-untyped-def]
        network = nnx.merge(graph, params, rest, copy=True)
        loss = optax.sigmoid_binary_cross_entropy(network(images), targets).mean()
        return loss, nnx.state(network, nnx.Not(nnx.Param))

    @partial(jax.jit, donate_argnums=(0, 1, 2))
    def step(params, rest, moments):  # type: ignore[no-untyped-def]
        (loss, rest), found = jax.value_and_grad(loss_of, has_aux=True)(params, rest)
        changes, moments = optimizer.update(found, moments)
        return optax.apply_updates(params, changes), rest, moments, loss

    state = params, rest, optimizer.init(params)

    def take(steps: int) -> None:
        nonlocal state
        for _ in range(steps):
            *state, loss = step(*state)
        loss.block_until_ready()

    return take
