"""TensorFlow over several nodes, with one process per node that drives all devices of the node.

``tf.distribute.MultiWorkerMirroredStrategy`` joins them: it reads from ``TF_CONFIG`` where the
others are, waits until all are there, and adds gradients up over all replicas of all nodes (NCCL
between GPUs, TensorFlow's own ring over gRPC between CPUs).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from helpers.frameworks import rank_info
from helpers.frameworks.rank_info import Place

if TYPE_CHECKING:
    import tensorflow as tf


class _Joined:
    strategy: tf.distribute.Strategy | None = None


def environment(here: Place) -> dict[str, str]:
    """What a rank's process has to have before TensorFlow starts."""
    cluster = {"worker": list(here.addresses)}
    task = {"type": "worker", "index": here.rank}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


def join(devices: Sequence[str], shares_gpus: bool) -> tf.distribute.Strategy | None:
    """MultiWorkerMirroredStrategy over these devices of each node; None where there is one node.

    Call it before TensorFlow computes anything: the devices of all nodes become one then.

    Args:
        devices: this node's, from ``list_devices``; each node has equally many.
        shares_gpus: whether replicas are on one GPU together, which NCCL refuses.

    Raises:
        RuntimeError: not all nodes came, or other replicas than those asked for.
    """
    import tensorflow as tf

    here = rank_info.here()
    if here is None or here.nodes == 1:
        return None
    if _Joined.strategy is None:
        by = "nccl" if devices[0].startswith("GPU") and not shares_gpus else "ring"
        # By name: with AUTO, TensorFlow reduces between GPUs by its ring too.
        how = tf.distribute.experimental.CommunicationImplementation[by.upper()]
        options = tf.distribute.experimental.CommunicationOptions(implementation=how)
        with _only_on(devices):
            _Joined.strategy = tf.distribute.MultiWorkerMirroredStrategy(
                communication_options=options
            )
    wanted = here.nodes * len(devices)
    if (found := _Joined.strategy.num_replicas_in_sync) != wanted:
        raise RuntimeError(f"{found} replicas have joined; {wanted} were asked for")
    return _Joined.strategy


def joined() -> tf.distribute.Strategy | None:
    """What :func:`join` gave; None where there is one node."""
    return _Joined.strategy


def gathered(own: np.ndarray) -> np.ndarray:
    """Each node's array, (nodes, ...), in every node; with one node its own alone.

    Args:
        own: this node's array, of the same shape and dtype in each.
    """
    import tensorflow as tf

    here, strategy = rank_info.here(), _Joined.strategy
    if here is None or strategy is None:
        return own[None]
    rows = here.table(own)
    first = here.rank * strategy.num_replicas_in_sync // here.nodes

    def share(context: Any) -> tf.Tensor:
        # A sum over replicas: of each node the first brings the row.
        mine = context.replica_id_in_sync_group == first
        return tf.constant(rows if mine else np.zeros_like(rows))

    shares = strategy.experimental_distribute_values_from_function(share)
    found: np.ndarray = strategy.reduce(tf.distribute.ReduceOp.SUM, shares, axis=None).numpy()
    return found


@contextmanager
def _only_on(devices: Sequence[str]) -> Iterator[None]:
    """Let the strategy that is made meanwhile use these devices of its node.

    By itself it takes all GPUs, even where a run is to have CPU devices, or one CPU.
    """
    from tensorflow.python.distribute import collective_all_reduce_strategy as strategies

    extended = strategies.CollectiveAllReduceExtended
    before = extended._initialize_local_devices

    def given(self: Any, cluster_resolver: Any, worker_device: str) -> tuple[tuple[str, ...], str]:
        kind = devices[0].partition(":")[0]
        return tuple(f"{worker_device}/device:{device}" for device in devices), kind

    extended._initialize_local_devices = given
    try:
        yield
    finally:
        extended._initialize_local_devices = before
