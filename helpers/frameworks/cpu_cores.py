"""Assign to each CPU device a fixed set of cores that no other device of the run uses.

So devices on one CPU are timed as GPUs are: a second device brings cores, and a single one leaves
the others idle. A core is a physical one, with all its hardware threads.
"""

import os
import platform
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import psutil
import threadpoolctl

from data_prep.files import core_limit
from helpers.errors import UserError
from helpers.recipe.settings import ON_DEVICE, ON_OWN, ON_SIBLINGS

SYSTEM, INFO = Path("/sys/devices/system"), Path("/proc/cpuinfo")
SHARED = "shared"
"""The value of ``cores_per_device`` with which devices share all cores."""
INSTRUCTION_SETS = (
    *("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
    *("amx_tile", "amx_bf16", "amx_int8", "asimd", "sve", "bf16"),
)
"""Those that decide how fast a CPU multiplies matrices, as Linux calls them."""
FOR_LOADERS = 4
"""A device's cores per core that its loader workers get, where they have cores of their own."""

Core: TypeAlias = tuple[int, ...]
"""A physical core: its hardware threads by the system's numbers."""


@dataclass(frozen=True)
class CpuDevice:
    """The cores of a CPU device: logical cores, by the system's numbers."""

    cores: tuple[int, ...]
    threads: int
    """That compute: one a physical core."""
    loader_cores: tuple[int, ...]

    def as_record(self) -> dict[str, Any]:
        return asdict(self)


def siblings(core: int, system: Path = SYSTEM) -> set[int]:
    """The other hardware threads of a logical core's core; empty if it has none."""
    with suppress(OSError):
        # As the kernel lists them: "0-2,8" is {0, 1, 2, 8}.
        text = (system / f"cpu/cpu{core}/topology/thread_siblings_list").read_text("ascii")
        ends = [part.split("-") for part in text.split(",")]
        return {i for each in ends for i in range(int(each[0]), int(each[-1]) + 1)} - {core}
    return set()


def machine(usable: Collection[int] | None = None, system: Path = SYSTEM) -> list[Core]:
    """The physical cores with threads of the ``usable`` ones, in their order.

    By default those that this process could use when it began, as many as a control group or a
    Slurm job allows: of 1.5 CPUs one core.
    """
    allowed, most = _at_first() if usable is None else (frozenset(usable), len(usable))
    cores = {tuple(sorted(({core} | siblings(core, system)) & allowed)) for core in allowed}
    return sorted(cores)[:most]


def divided(
    count: int, each: int | None, place: str, cores: Sequence[Core]
) -> tuple[CpuDevice, ...]:
    """Divide the cores of :func:`machine` into ``count`` devices of neighbouring cores.

    Args:
        count: of devices.
        each: physical cores of a device; None: as many as there are for so many devices.
        place: one of ``settings.LOADER_CORES``.

    Raises:
        UserError: there are too few, or no place for the loader workers.
    """
    most = len(cores) // count
    if most == 0 or (each or most) > most:
        raise UserError(
            f"devices {count} of {each or 1} core(s): this process may use {len(cores)} core(s); "
            f"give {len(cores) // (each or 1)} at most. With cores_per_device '{SHARED}' devices "
            "share all cores, and their times are not ranked"
        )
    own = each or most
    return tuple(_device(cores[i * own : (i + 1) * own], place) for i in range(count))


def confine(devices: Sequence[CpuDevice]) -> None:
    """Pin this process to these devices' cores, and have it compute with their threads.

    TensorFlow's and XLA's pools then have as many threads as the process has cores; OpenMP's and
    OpenBLAS's, of which each device has one, as a device has. Processes that it forks from now on
    are loader workers, and run on the loader's cores.
    """
    _at_first()  # before it is changed
    os.environ["OMP_NUM_THREADS"] = str(devices[0].threads)  # for threads that begin later
    threadpoolctl.threadpool_limits(devices[0].threads)
    own = {core for device in devices for core in device.cores}
    loaders = {core for device in devices for core in device.loader_cores}
    for thread in _threads():
        with suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(thread, own)
    if not _Now.loaders:
        os.register_at_fork(after_in_child=_Now.place_worker)
    _Now.loaders, _Now.threads = loaders, devices[0].threads


def threads_of_a_device() -> int | None:
    """The compute threads of each device that this process is confined to; None if it is not."""
    return _Now.threads


def processor() -> dict[str, Any]:
    """Threads of a core, the clock and the instruction sets of the first core."""
    if not INFO.exists():  # not Linux
        return {}
    clock = psutil.cpu_freq()
    known = f"{of_cpu('flags')} {of_cpu('Features')}".split()  # of x86, and of ARM
    return {
        "threads_per_core": 1 + len(siblings(min(_at_first()[0]))),
        **({"clock_mhz": clock.max or clock.current} if clock else {}),
        "instruction_sets": [name for name in INSTRUCTION_SETS if name in known],
    }


def of_cpu(key: str) -> str:
    """A property of the first core on Linux, such as ``model name``; elsewhere the general name."""
    with suppress(OSError), INFO.open(encoding="utf-8") as lines:
        for line in lines:
            if line.startswith(key):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def pinned() -> tuple[int, ...]:
    """The logical cores that any of this process's threads may run on now."""
    found: set[int] = set()
    for thread in _threads():
        with suppress(ProcessLookupError):  # it has ended
            found |= os.sched_getaffinity(thread)
    return tuple(sorted(found))


def beside(core: int, usable: Collection[int], threads: Collection[int]) -> dict[str, set[int]]:
    """The possible core masks, by place, for the loader of a process on one logical core.

    ``usable`` are the cores that both may use, ``threads`` the core's :func:`siblings`.
    """
    allowed = set(usable)
    masks = {
        ON_DEVICE: {core},
        ON_SIBLINGS: set(threads) & allowed,
        ON_OWN: allowed - {core} - set(threads),
    }
    return {place: mask for place, mask in masks.items() if mask}


def _threads() -> list[int]:
    return [int(path.name) for path in Path("/proc/self/task").iterdir()]


class _Now:
    threads: int | None = None
    loaders: frozenset[int] | set[int] = frozenset()

    @classmethod
    def place_worker(cls) -> None:
        os.sched_setaffinity(0, cls.loaders)


@cache
def _at_first() -> tuple[frozenset[int], int]:
    """The logical cores that this process could use before it was pinned, and how many at once."""
    if not hasattr(os, "sched_getaffinity"):  # not Linux
        count = os.cpu_count() or 1
        return frozenset(range(count)), count
    allowed = frozenset(os.sched_getaffinity(0))
    return allowed, max(1, int(min(core_limit(), len(allowed))))


def _device(own: Sequence[Core], place: str) -> CpuDevice:
    if place == ON_SIBLINGS:
        if not all(core[1:] for core in own):
            raise UserError(
                f"loader_cores '{ON_SIBLINGS}': these cores have one hardware thread each; give "
                f"'{ON_DEVICE}' or '{ON_OWN}'"
            )
        siblings = _flat(core[1:] for core in own)
        return CpuDevice(_flat(core[:1] for core in own), len(own), siblings)
    if place == ON_DEVICE:
        return CpuDevice(_flat(own), len(own), _flat(own))
    if len(own) == 1:
        raise UserError(
            f"loader_cores '{ON_OWN}': each device has one core here, and it has to compute; give "
            f"'{ON_DEVICE}', or fewer devices"
        )
    count = len(own) - max(1, len(own) // FOR_LOADERS)
    return CpuDevice(_flat(own[:count]), count, _flat(own[count:]))


def _flat(threads: Iterable[Iterable[int]]) -> tuple[int, ...]:
    return tuple(sorted(number for each in threads for number in each))
