"""TensorFlow over several nodes, with one process per node that drives all devices of the node.

``tf.distribute.MultiWorkerMirroredStrategy`` reads from ``TF_CONFIG`` where the others are, and
adds gradients up over all replicas of all nodes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from helpers.frameworks import rank_info
from helpers.frameworks.rank_info import Place

if TYPE_CHECKING:
    import tensorflow as tf


class _Joined:
    strategy: tf.distribute.Strategy | None = None


def environment(here: Place) -> dict[str, str]:
    """The variables that a rank's process needs before TensorFlow starts."""
    cluster = {"worker": list(here.addresses)}
    task = {"type": "worker", "index": here.rank}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


def use(kind: str, count: int) -> None:
    """Let MultiWorkerMirroredStrategy have these devices of each node, and note it when it is made.

    By default, TensorFlow uses all GPUs, even if the run uses CPU devices, or just one CPU. With
    one node, nothing happens.
    """
    here = rank_info.here()
    if here is None or here.nodes == 1:
        return
    from tensorflow.python.distribute import collective_all_reduce_strategy as strategies

    def given(self: Any, cluster_resolver: Any, worker_device: str) -> tuple[tuple[str, ...], str]:
        _Joined.strategy = self._container_strategy()
        devices = (f"{worker_device}/device:{kind.upper()}:{number}" for number in range(count))
        return tuple(devices), kind.upper()

    strategies.CollectiveAllReduceExtended._initialize_local_devices = given


def joined() -> tf.distribute.Strategy | None:
    """The strategy that the notebook has made over several nodes; None if there is none."""
    return _Joined.strategy


def gathered(own: np.ndarray) -> np.ndarray:
    """Each node's array, (nodes, ...), on every node; with one node, only its own."""
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
