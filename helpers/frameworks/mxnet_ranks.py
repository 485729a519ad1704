"""MXNet over several nodes, with one worker process and one server process per node."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import count
from threading import Thread
from typing import Any

import numpy as np

from helpers.frameworks import rank_info
from helpers.frameworks.rank_info import Place

KIND, NATIVE = "dist_device_sync", "dist_sync_device"
"""MXNet knows its store by either name; a notebook's ``mx.kv.create`` of the first is answered by
:func:`register`."""
SERVE = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() == {worker}:
    import mxnet  # in its role it serves, and does not return
"""
"""The program of a scheduler or a server, which ends with the worker that started it."""
ZEROED = {"GLIBC_TUNABLES": "glibc.malloc.perturb=255:glibc.malloc.tcache_count=0"}
"""glibc then fills all new memory with zeros: MXNet's server never sets its ``multi_precision_``,
and where it found that on, it added float64 up in float32."""


class _Joined:
    store: Any = None  # there may be one in a process: a second one's end would end the servers
    prefixes = count()


def environment(here: Place) -> dict[str, str]:
    """The variables that MXNet reads in a rank's process when it is imported."""
    if here.nodes == 1:
        return {}
    return {
        "DMLC_ROLE": "worker",
        "DMLC_PS_ROOT_URI": here.first_host,
        "DMLC_PS_ROOT_PORT": str(here.port),
        "DMLC_NUM_WORKER": str(here.nodes),
        "DMLC_NUM_SERVER": str(here.nodes),
        "DMLC_NODE_HOST": here.addresses[here.rank].rpartition(":")[0],
        "DMLC_INTERFACE": here.interfaces[here.rank],
    }


def kind() -> str:
    """The key-value store that sums over all devices: of all nodes, or of the one that there is."""
    here = rank_info.here()
    return "device" if here is None or here.nodes == 1 else KIND


def gathered(own: np.ndarray) -> np.ndarray:
    """Each node's array of floats, (nodes, ...), on every node."""
    import mxnet as mx

    here = rank_info.here()
    if here is None or here.nodes == 1:
        return own[None]
    rows = np.zeros((here.ranks, *own.shape), own.dtype)  # summed over all ranks
    rows[here.rank] = own
    found = mx.nd.array(rows, dtype=rows.dtype)
    mx.kv.create(KIND).pushpull("rows", found)
    summed: np.ndarray = found.asnumpy()
    return summed


def register() -> None:
    """Let ``mx.kv.create("dist_device_sync")`` return stores with separate keys.

    Two ``Trainer``s number their weights alike, and would share their keys on the servers.
    """
    import mxnet as mx

    class OverNodes(mx.kv.KVStoreBase):
        """Add up the arrays of one process's stores; a key's first sum needs no value before it."""

        type = KIND

        def __init__(self) -> None:
            self._joined, self._prefix = _join(), next(_Joined.prefixes)
            self._keys: set[str] = set()

        @property
        def rank(self) -> int:
            here = rank_info.here()  # MXNet's own goes by address and port, in any order
            assert here is not None
            return here.rank

        @property
        def num_workers(self) -> int:
            return int(self._joined.num_workers)

        def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
            # It waits, for MXNet's engine does not know that this pull and the first sum of the
            # same key have an order: a late pull would make weights of gradients.
            name, arrays = self._name(key), out if isinstance(out, list) else [out]
            self._joined.broadcast(name, value, arrays)
            self._keys.add(name)
            for array in arrays:
                array.wait_to_read()

        def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
            if (name := self._name(key)) not in self._keys:
                zeros = mx.nd.zeros_like(value)
                self.broadcast(key, zeros, zeros.copy())
            self._joined.pushpull(name, value, out, priority)

        def _name(self, key: Any) -> str:
            return f"{self._prefix}/{key}"

        @staticmethod
        def is_capable(capability: str) -> bool:
            return False  # of updating weights itself: each device updates its own

    mx.kv.KVStoreBase.kv_registry[KIND] = OverNodes


def _join() -> Any:
    import mxnet as mx

    here = rank_info.here()
    assert here is not None, "there is one node"
    if _Joined.store is None:
        _start("server", here)
        if here.rank == 0:
            _start("scheduler", here)
        _Joined.store = mx.kv.create(NATIVE)  # returns when all workers and servers are there
    return _Joined.store


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
