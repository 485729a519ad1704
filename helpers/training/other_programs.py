"""Measure how much of a run's own cores other programs use, in its epochs and measured rounds.

These cores' busy time (with *steal*, a hypervisor's) less the CPU time of the run's processes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import psutil

from gpumon.host import busy_and_total
from helpers.frameworks import rank_info
from helpers.frameworks.cpu_cores import CpuDevice


class Watch:
    """Measure what programs other than this process and its children use of the devices' cores."""

    def __init__(self, devices: Sequence[CpuDevice]) -> None:
        self._cores = {core for cpu in devices for core in cpu.cores}
        self._root = os.getpid()  # in a replica, too, the notebook's
        self._parts: dict[str, np.ndarray] = {}
        self._reason: str | None = None

    @contextmanager
    def during(self, part: str) -> Iterator[None]:
        """Count within this context; a repeated part replaces the earlier one."""
        before = self._read()
        yield
        self._parts[part] = self._read() - before

    def used(self) -> dict[str, Any]:
        """The average number of cores over all parts; if that is None, the reason."""
        used = None
        if not self._reason and self._cores and self._parts:
            clock, busy, own = np.sum([*self._parts.values()], axis=0)
            used = max(0.0, float((busy - own) / clock))
        return {"cores": len(self._cores), "used": used, "reason": self._reason}

    def _read(self) -> np.ndarray:
        try:
            return counters(self._cores, self._root)
        except (OSError, psutil.Error, KeyError) as error:
            self._reason = f"the system does not tell what its cores do: {error}"
            return np.zeros(3)


def counters(cores: Collection[int], root: int) -> np.ndarray:
    """Seconds by the clock, of work on these cores, and of a process with its descendants."""
    listed = busy_and_total(cores)
    busy = sum(listed[core][0] for core in cores)
    process, own = psutil.Process(root), 0.0
    # Children first: the time of one that ends meanwhile is then its parent's.
    for each in (*reversed(process.children(recursive=True)), process):
        with suppress(psutil.NoSuchProcess):
            own += sum(each.cpu_times()[:4])  # with those of children that were waited for
    return np.array([time.monotonic(), busy, own])


def as_record(each: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The record's section ``other_programs``, of all ranks; replicas look at the same cores."""
    found = each if rank_info.here() else each[:1]
    reason = next((one["reason"] for one in found if one["reason"]), None)
    used = None if reason else sum(one["used"] or 0.0 for one in found)
    return {"cores": sum(one["cores"] for one in found), "used": used, "reason": reason}
