"""Keras on JAX over several nodes, with one process per node, joined as in ``jax_ranks``.

``keras.distribution.initialize`` would join them too, but let all networks reach the first, and
have Slurm's variables say which devices are whose. Keras places what it makes on the devices of all
nodes, and lets JAX compare it first: it has to be the same in each, random numbers too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from helpers.frameworks import collectives, jax_ranks
from helpers.frameworks.jax_ranks import all_devices, gradients, shard

__all__ = [
    "all_devices",
    "gradient_all_reduce",
    "gradients",
    "join",
    "own_array",
    "shard",
]

_SEED = 0
"""Of what Keras draws for new layers; the notebook's weights replace it."""


def join() -> None:
    """What ``keras.distribution.initialize`` does where there are several nodes, else nothing.

    Call it before JAX looks for devices.

    Raises:
        RuntimeError: not all nodes came.
    """
    jax_ranks.join()
    if jax.distributed.is_initialized():
        import keras

        keras.utils.set_random_seed(_SEED)


def own_array(array: jax.Array, mesh: Mesh) -> jax.Array:
    """Of an array that is split over the mesh, this node's rows, on its devices."""
    found: jax.Array = multihost_utils.global_array_to_host_local_array(
        array, mesh, P(mesh.axis_names[0])
    )
    return found


def gradient_all_reduce(replica: Any, devices: Sequence[jax.Device]) -> collectives.AllReduce:
    """The mean of one vector as long as all gradients, over the mesh.

    Args:
        replica: the notebook's.
        devices: this node's.
    """
    shapes = [variable.shape for variable in replica.network.trainable_variables]
    return jax_ranks.all_reduce_of(sum(int(np.prod(shape)) for shape in shapes), devices)
