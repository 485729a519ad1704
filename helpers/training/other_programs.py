"""Measure how much of a run's own cores other programs use while the run is measured.

It is the time for which these cores are busy (``/proc/stat``, with *steal*, what a hypervisor gave
to others) less the CPU time of the run's own processes, the monitor's among them: in its epochs
and in its measured rounds. Each of several ranks looks at its own devices' cores.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from gpumon import process
from helpers.frameworks import rank_info
from helpers.frameworks.cpu_cores import CpuDevice


class Counters(NamedTuple):
    """Seconds, counted from some moment in the past."""

    clock: float
    busy: float
    """Those of all cores together."""
    own: float
    """CPU time of the run's processes."""


class Used(NamedTuple):
    """How many of so many cores others used on average; where that is None, why."""

    cores: int
    used: float | None
    reason: str | None = None


class Watch:
    """What others use of these devices' cores, beside this process and all that it starts."""

    def __init__(self, devices: Sequence[CpuDevice]) -> None:
        self._cores = {core for cpu in devices for core in (*cpu.cores, *cpu.loader_cores)}
        self._root = os.getpid()  # in a replica, too, the notebook's
        self._parts: dict[str, Counters] = {}
        self._reason: str | None = None

    @contextmanager
    def during(self, part: str) -> Iterator[None]:
        """Count what happens inside; a part that is done again replaces the earlier one."""
        before = self._read()
        yield
        after = self._read()
        if before and after:
            self._parts[part] = Counters(*(b - a for a, b in zip(before, after, strict=True)))

    def used(self) -> Used:
        """Over all parts."""
        if self._reason or not self._parts:
            return Used(len(self._cores), None, self._reason)
        clock, busy, own = (sum(each) for each in zip(*self._parts.values(), strict=True))
        return Used(len(self._cores), max(0.0, busy - own) / clock)

    def _read(self) -> Counters | None:
        try:
            return counters(self._cores, self._root) if self._cores else None
        except (OSError, ValueError) as error:
            self._reason = str(error)
            return None


def counters(cores: Collection[int], root: int) -> Counters:
    """Those of these cores, and of a process with its descendants, also those that have ended.

    Raises:
        OSError, ValueError: this system does not tell.
    """
    found = process.busy_and_total(cores)
    if missing := sorted(set(cores) - found.keys()):
        raise ValueError(f"{process.PROC}/stat does not list core {missing[0]}")
    if not any(total for _, total in found.values()):
        raise ValueError(f"{process.PROC}/stat does not count")
    process.slurp(f"{process.PROC}/{root}/task/{root}/children")  # else no descendant is found
    ticks = 0
    # Children first: the time of one that ends meanwhile is then its parent's.
    for each in reversed([*process.tree(root)]):
        with suppress(FileNotFoundError, ProcessLookupError):
            # After the name: user and system time, and those of children that were waited for.
            said = process.slurp(f"{process.PROC}/{each}/stat").rpartition(b")")[2].split()
            ticks += sum(map(int, said[11:15]))
    busy = sum(busy for busy, _ in found.values())
    return Counters(time.monotonic(), busy, ticks * process.TICK)


def as_record(each: Sequence[Used]) -> dict[str, Any]:
    """The record's section ``other_programs``: of the host where they used the largest part.

    Args:
        each: what each process of the run found; of replicas the first looks at all cores.
    """
    here = rank_info.here()
    hosts = ("",) if here is None else here.hosts
    found = []
    for host in dict.fromkeys(hosts):
        own = [one for one, of in zip(each, hosts, strict=False) if of == host]
        reason = next((one.reason for one in own if one.reason), None)
        used = None if reason else sum(one.used or 0.0 for one in own)
        said = {"cores": sum(one.cores for one in own), "used": used, "reason": reason}
        found.append(said | ({"host": host} if len(set(hosts)) > 1 else {}))
    return max(found, key=_share)


def _share(found: Mapping[str, Any]) -> float:
    return math.inf if found["used"] is None else found["used"] / max(1, found["cores"])
