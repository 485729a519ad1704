"""Assign to each CPU device a fixed set of cores that no other device of the run uses.

So a second device brings cores. A core is a physical one, with all its hardware threads.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import threadpoolctl

from data_prep.files import core_limit
from helpers.errors import UserError

SYSTEM = Path("/sys/devices/system")
SHARED = "shared"
"""The value of ``cores_per_device`` with which devices share all cores."""


@dataclass(frozen=True)
class CpuDevice:
    """Its logical cores, by the system's numbers, and the threads that compute: one a core."""

    cores: tuple[int, ...]
    threads: int


def siblings(core: int) -> set[int]:
    """The other hardware threads of a logical core's core; empty if it has none."""
    with suppress(OSError):
        # As the kernel lists them: "0-2,8" is {0, 1, 2, 8}.
        text = (SYSTEM / f"cpu/cpu{core}/topology/thread_siblings_list").read_text("ascii")
        ends = [part.split("-") for part in text.split(",")]
        return {i for each in ends for i in range(int(each[0]), int(each[-1]) + 1)} - {core}
    return set()


def machine() -> list[tuple[int, ...]]:
    """The physical cores that this process could use at first, as threads; of 1.5 CPUs one core."""
    allowed, most = _at_first()
    cores = {tuple(sorted(({core} | siblings(core)) & allowed)) for core in allowed}
    return sorted(cores)[:most]


def divided(count: int, each: int | None) -> tuple[CpuDevice, ...]:
    """Divide the cores of :func:`machine` into ``count`` devices of ``each``, or of as many as go.

    Raises:
        UserError: there are too few.
    """
    cores = machine()
    most = len(cores) // count
    if most == 0 or (each or most) > most:
        raise UserError(
            f"devices {count} of {each or 1} core(s): this process may use {len(cores)} core(s); "
            f"give {len(cores) // (each or 1)} at most. With cores_per_device '{SHARED}' devices "
            "share all cores, and their times are not ranked"
        )
    own = each or most
    parts = (cores[first : first + own] for first in range(0, count * own, own))
    return tuple(CpuDevice(tuple(sorted(sum(part, ()))), own) for part in parts)


def confine(devices: Sequence[CpuDevice]) -> None:
    """Pin this process, and what it forks, to these devices' cores, with a device's threads."""
    _at_first()  # before it is changed
    os.environ["OMP_NUM_THREADS"] = str(devices[0].threads)  # for threads that begin later
    threadpoolctl.threadpool_limits(devices[0].threads)
    own = {core for device in devices for core in device.cores}
    for thread in _threads():
        with suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(thread, own)
    Confined.threads = devices[0].threads


class Confined:
    threads: int | None = None
    """How many threads each of this process's devices has; None without confinement."""


def pinned() -> tuple[int, ...]:
    """The logical cores that any of this process's threads may run on now."""
    found: set[int] = set()
    for thread in _threads():
        with suppress(ProcessLookupError):  # it has ended
            found |= os.sched_getaffinity(thread)
    return tuple(sorted(found))


def _threads() -> list[int]:
    return [int(path.name) for path in Path("/proc/self/task").iterdir()]


@cache
def _at_first() -> tuple[set[int], int]:
    """The logical cores that this process could use before it was pinned, and how many at once."""
    allowed = os.sched_getaffinity(0)
    return allowed, max(1, int(min(core_limit(), len(allowed))))
