"""JAX over several nodes, with one process per node that drives all devices of the node.

``jax.distributed.initialize`` joins them, and ``jax.devices()`` are those of all nodes from then
on: a mesh of all of them is all that the notebook's step needs. An array may then lie where this
process cannot reach it, so each gives its own part (:func:`shard`). XLA exchanges what is on GPUs
by NCCL, what is on CPUs by Gloo.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from helpers.frameworks import rank_info

AXIS = "replica"
HELD: list[jax.Device] = []
"""This process's devices."""


def join() -> None:
    """``jax.distributed.initialize`` where there are several nodes, else nothing.

    Call it before JAX looks for devices.

    Raises:
        RuntimeError: not all nodes came.
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
    _send_over(here.interfaces[here.rank])


def all_devices(devices: Sequence[jax.Device]) -> list[jax.Device]:
    """The devices of all nodes, one node's after the other's; with one node these alone.

    All nodes have to call it for the first time at the same point: it connects them.

    Args:
        devices: this node's; each has equally many.
    """
    if jax.process_count() == 1:
        return list(devices)
    every = jax.devices(devices[0].platform)
    found = sorted(every, key=lambda device: (device.process_index, device.id))
    _connect(tuple(found), len(devices))
    return found


def shard(tree: Any, sharding: NamedSharding) -> Any:
    """``jax.device_put`` over the devices of all nodes; what lies there already stays.

    Args:
        tree: arrays: along an axis that is split this node's part, else the same in each node.
        sharding: on a mesh of :func:`all_devices`.
    """
    if jax.process_count() == 1:
        return jax.device_put(tree, sharding)

    def placed(array: Any) -> jax.Array:
        if isinstance(array, jax.Array) and not array.is_fully_addressable:
            return array
        if is_key(array):
            return placed_key(array, placed)
        return jax.make_array_from_process_local_data(sharding, np.asarray(array))

    return jax.tree.map(placed, tree)


def is_key(array: Any) -> bool:
    """Whether it is a random key, of a layer that draws: NumPy has no array of those."""
    return bool(jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key))


def placed_key(key: jax.Array, placed: Callable[[Any], jax.Array]) -> jax.Array:
    """The key whose data ``placed`` puts where they belong."""
    data, drawn_by = jax.random.key_data(key), jax.random.key_impl(key)
    return jax.random.wrap_key_data(placed(data), impl=drawn_by)


def own_part(array: jax.Array) -> np.ndarray:
    """This node's rows of an array that is split along its first axis; waits for them."""
    return np.concatenate([np.asarray(each.data) for each in array.addressable_shards])


def gathered(own: np.ndarray) -> np.ndarray:
    """Each node's array, (nodes, ...), in every node; with one node its own alone.

    Args:
        own: this node's array, of the same shape and dtype in each.
    """
    with jax.enable_x64(True):
        found: np.ndarray = multihost_utils.process_allgather(own)
    return found


@cache
def _connect(every: tuple[jax.Device, ...], own: int) -> None:
    """Let the devices exchange something.

    Gloo connects processes in their first exchange, and ends it if one is 30 s later than another,
    as it may be after compiling a step.
    """
    mesh, each = Mesh(np.array(every), (AXIS,)), P(AXIS)
    mean = jax.shard_map(
        lambda own: jax.lax.pmean(own, AXIS),
        mesh=mesh, in_specs=each, out_specs=each, check_vma=False,
    )  # fmt: skip
    zeros = shard(np.zeros((own, 1), np.float32), NamedSharding(mesh, each))
    jax.jit(mean)(zeros).block_until_ready()


def _send_over(interface: str) -> None:
    """Let Gloo use this interface.

    JAX leaves the choice to Gloo, which takes the one that the host's name leads to: often the
    loopback, or a slower network.
    """
    from jax._src import distributed, xla_bridge
    from jax.extend import backend
    from jaxlib import _jax

    gloo = _jax.make_gloo_tcp_collectives(
        distributed_client=distributed.global_state.client, interface=interface
    )
    client = partial(xla_bridge.make_cpu_client, collectives=gloo)
    backend.register_backend_factory("cpu", client, priority=0, fail_quietly=False)
