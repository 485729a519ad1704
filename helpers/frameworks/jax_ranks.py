"""JAX over several nodes, with one process per node that drives all devices of the node."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from helpers.frameworks import rank_info

AXIS = "replica"
HELD: list[jax.Device] = []
"""This process's devices."""


def join() -> None:
    """Join several nodes, before JAX looks for devices; RuntimeError if a node is missing.

    Gloo then uses the rank's interface, and not the one that the host's name leads to.
    """
    here = rank_info.here()
    if here is None or here.nodes == 1 or jax.distributed.is_initialized():
        return
    address = f"{here.first_host}:{here.port}"
    jax.distributed.initialize(
        coordinator_address=address,
        coordinator_bind_address=address,  # by default all networks can reach it
        num_processes=here.ranks,
        process_id=here.rank,
        cluster_detection_method="deactivate",
    )
    from jax._src import distributed, xla_bridge
    from jax.extend import backend
    from jaxlib import _jax

    gloo = _jax.make_gloo_tcp_collectives(
        distributed_client=distributed.global_state.client, interface=here.interfaces[here.rank]
    )
    client = partial(xla_bridge.make_cpu_client, collectives=gloo)
    backend.register_backend_factory("cpu", client, priority=0, fail_quietly=False)


def all_devices(devices: Sequence[jax.Device]) -> list[jax.Device]:
    """The devices of all nodes, node by node.

    The first call, which all nodes make at the same point, connects them.
    """
    if jax.process_count() == 1:
        return list(devices)
    every = jax.devices(devices[0].platform)
    found = sorted(every, key=lambda device: (device.process_index, device.id))
    _connect(tuple(found), len(devices))
    return found


def is_key(array: Any) -> bool:
    """Whether it is a random key, of a layer that draws: NumPy has no array of those."""
    return bool(jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key))


def own_part(array: jax.Array) -> np.ndarray:
    """This node's rows of an array that is split along its first axis; waits for them."""
    return np.concatenate([np.asarray(each.data) for each in array.addressable_shards])


@cache
def _connect(every: tuple[jax.Device, ...], own: int) -> None:
    """Let the devices exchange something: Gloo connects processes then, and waits 30 s at most."""
    each = NamedSharding(Mesh(np.array(every), (AXIS,)), P(AXIS))
    zeros = jax.make_array_from_process_local_data(each, np.zeros(own, np.float32))
    jax.jit(jnp.sum)(zeros).block_until_ready()
