"""TensorFlow over several nodes, with one process per node that drives all its devices."""

import json
from typing import Any

from helpers.frameworks import rank_info
from helpers.frameworks.rank_info import Place


def environment(here: Place) -> dict[str, str]:
    """The variables that a rank's process needs before TensorFlow starts."""
    cluster = {"worker": list(here.addresses)}
    task = {"type": "worker", "index": here.rank}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


def use(kind: str, count: int) -> None:
    """Let MultiWorkerMirroredStrategy have these devices of each node, not all GPUs or one CPU."""
    here = rank_info.here()
    if here is None or here.nodes == 1:
        return
    from tensorflow.python.distribute import collective_all_reduce_strategy as strategies

    def given(self: Any, cluster_resolver: Any, worker_device: str) -> tuple[tuple[str, ...], str]:
        devices = (f"{worker_device}/device:{kind.upper()}:{number}" for number in range(count))
        return tuple(devices), kind.upper()

    strategies.CollectiveAllReduceExtended._initialize_local_devices = given
