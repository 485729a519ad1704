"""Keras on JAX over several nodes, with one process per node, joined as in ``jax_ranks``.

``keras.distribution.initialize`` would join them too, but let all networks reach the first, and
have Slurm's variables say which devices are whose. Keras places what it makes on the devices of all
nodes, and lets JAX compare it first: it has to be the same in each, random numbers too.
"""

from __future__ import annotations

import jax
from jax.experimental import multihost_utils
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from helpers.frameworks import jax_ranks
from helpers.frameworks.jax_ranks import all_devices as all_devices
from helpers.frameworks.jax_ranks import shard as shard

_SEED = 0
"""The seed of what Keras draws for new layers; the notebook's weights replace it."""


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
    """This node's rows, on its devices, of an array that is split over the mesh."""
    found: jax.Array = multihost_utils.global_array_to_host_local_array(
        array, mesh, P(mesh.axis_names[0])
    )
    return found
