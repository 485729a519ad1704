"""MXNet over several nodes, with one worker process and one server process per node.

A key-value store ``dist_device_sync`` sums gradients over the devices of each node, as ``device``
does, and then over the nodes: every worker pushes its sums to the servers, which answer when those
of all workers are in. The servers share the weights' keys out among them, one on each node; a
scheduler on the first node tells all where the others are. Both are processes that do nothing but
import MXNet. A worker starts those of its own node; they end with it, and it with them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import count
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from helpers.frameworks import rank_info
from helpers.frameworks.rank_info import Place

if TYPE_CHECKING:
    import mxnet as mx

KIND = "dist_device_sync"
SERVE = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() == {worker}:
    import mxnet  # in its role it serves, and does not return
"""
"""The program of a scheduler or a server, which ends with the worker that started it."""
ZEROED = {"GLIBC_TUNABLES": "glibc.malloc.perturb=255:glibc.malloc.tcache_count=0"}
"""glibc then fills all new memory with zeros; its per-thread cache would hand old memory out as it
is. MXNet's server never sets its switch ``multi_precision_``, and where it found it on, it added
float64 up in float32."""


class _Joined:
    store: Any = None  # there may be one in a process: a second one's end would end the servers
    prefixes = count()
    keys: ClassVar[set[str]] = set()  # of sums that are no gradients


def environment(here: Place) -> dict[str, str]:
    """What MXNet in a rank's process has to know before it is imported."""
    host = here.addresses[here.rank].rpartition(":")[0]
    return {
        "DMLC_ROLE": "worker",
        "DMLC_PS_ROOT_URI": here.first_host,
        "DMLC_PS_ROOT_PORT": str(here.port),
        "DMLC_NUM_WORKER": str(here.nodes),
        "DMLC_NUM_SERVER": str(here.nodes),
        "DMLC_NODE_HOST": host,
        "DMLC_INTERFACE": here.interfaces[here.rank],
    }


def store() -> mx.kv.KVStoreBase | str:
    """What a ``Trainer`` sums its gradients with: over all nodes, or ``device`` where there is one.

    Raises:
        RuntimeError: not all workers came, or others than those of the run's nodes.
    """
    here = rank_info.here()
    if here is None or here.nodes == 1:
        return "device"
    return _of_a_trainer(_join(here))


def gathered(own: np.ndarray) -> np.ndarray:
    """Each node's array, (nodes, ...), in every node; with one node its own alone.

    Args:
        own: floats, of the same shape and dtype in each node.
    """
    import mxnet as mx

    here = rank_info.here()
    if here is None or here.nodes == 1:
        return own[None]
    joined, rows = _join(here), here.table(own)
    found = mx.nd.array(rows, dtype=rows.dtype)
    key = f"gathered {rows.dtype} {rows.shape}"
    if key not in _Joined.keys:
        _broadcast(joined, key, mx.nd.zeros_like(found), [mx.nd.zeros_like(found)])
        _Joined.keys.add(key)
    joined.pushpull(key, found)
    summed: np.ndarray = found.asnumpy()
    return summed


def averaged(arrays: Sequence[mx.nd.NDArray]) -> list[mx.nd.NDArray]:
    """Their means over all nodes; with one node they are what they are.

    Args:
        arrays: float arrays on one device, of the same shapes in each node.
    """
    import mxnet as mx

    here = rank_info.here()
    if here is None or here.nodes == 1:
        return list(arrays)
    own = np.concatenate([array.asnumpy().ravel() for array in arrays])
    mean = gathered(own).mean(axis=0)
    parts = np.split(mean, np.cumsum([array.size for array in arrays])[:-1])
    return [
        mx.nd.array(part.reshape(array.shape), array.context, array.dtype)
        for part, array in zip(parts, arrays, strict=True)
    ]


def _join(here: Place) -> Any:
    """The process's one store over all nodes."""
    import mxnet as mx

    if _Joined.store is None:
        _start("server", here)
        if here.rank == 0:
            _start("scheduler", here)
        _Joined.store = mx.kv.create(KIND)  # returns when all workers and servers are there
        if (found := _Joined.store.num_workers) != here.nodes:
            raise RuntimeError(f"{found} workers have joined MXNet; {here.nodes} were asked for")
    return _Joined.store


def _broadcast(joined: Any, key: str, value: Any, out: Sequence[Any]) -> None:
    """Give a key its first value on the servers, and that to ``out`` in every worker.

    It waits for it. MXNet's engine does not know that this pull and the first sum of the same key
    have an order: on a busy machine a late pull finds the sum, and a Trainer's weights would become
    gradients.
    """
    joined.broadcast(key, value, out)
    for array in out:
        array.wait_to_read()


def _of_a_trainer(joined: Any) -> mx.kv.KVStoreBase:
    """The store with keys of its own, for a ``Trainer`` numbers its weights from 0 as all do."""
    import mxnet as mx

    prefix = next(_Joined.prefixes)

    class OfATrainer(mx.kv.KVStoreBase):
        type = joined.type
        rank = joined.rank
        num_workers = joined.num_workers

        def broadcast(self, key: int, value: Any, out: Any, priority: int = 0) -> None:
            _broadcast(joined, f"{prefix}/{key}", value, out)

        def pushpull(self, key: int, value: Any, out: Any = None, priority: int = 0) -> None:
            joined.pushpull(f"{prefix}/{key}", value, out, priority)

        @staticmethod
        def is_capable(capability: str) -> bool:
            return False  # of updating weights itself: each device updates its own

    return OfATrainer()


def _start(role: str, here: Place) -> None:
    """Start a process that serves, and fail as soon as it ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE.format(worker=os.getpid())],
        env={**os.environ, **environment(here), **ZEROED, "DMLC_ROLE": role},
        stdin=subprocess.DEVNULL,
    )

    def watch() -> None:
        status = process.wait()
        how = f"signal {-status}" if status < 0 else f"exit code {status}"
        rank_info.fail(f"MXNet's {role} process has ended ({how})")

    Thread(target=watch, daemon=True).start()
