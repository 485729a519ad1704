"""Assign to each CPU device a fixed set of cores that no other device of the run uses.

With a set of its own each, devices on one CPU are timed as GPUs are: a second device brings cores,
and a single one leaves the others idle. A core is a physical one, with all its hardware threads;
Linux describes both in text files under ``/sys/devices/system``.

A process that drives one device is pinned to the device's cores, a process that drives all devices
to the cores of all. Linux then takes the memory that the process writes first from its NUMA node.
"""

import os
import platform
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import threadpoolctl

from data_prep.files import core_limit
from helpers.errors import UserError
from helpers.recipe.settings import LOADER_CORES as LOADER_CORES
from helpers.recipe.settings import ON_DEVICE as ON_DEVICE
from helpers.recipe.settings import ON_OWN as ON_OWN
from helpers.recipe.settings import ON_SIBLINGS as ON_SIBLINGS

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


@dataclass(frozen=True)
class Core:
    """A physical core: its NUMA node, and its hardware threads by the system's numbers."""

    node: int
    threads: tuple[int, ...]


@dataclass(frozen=True)
class CpuDevice:
    """What a CPU device has; cores are logical ones, by the system's numbers."""

    cores: tuple[int, ...]
    threads: int
    """That compute: one a physical core."""
    loader_cores: tuple[int, ...]
    numa_node: int | None = None
    """None where its cores are on several."""

    def as_record(self) -> dict[str, Any]:
        """An entry of the record's ``devices.cpus``."""
        found = {"cores": self.cores, "threads": self.threads, "loader_cores": self.loader_cores}
        return found | ({} if self.numa_node is None else {"numa_node": self.numa_node})


def listed(text: str) -> set[int]:
    """Logical cores as the kernel lists them: ``0-2,8`` is {0, 1, 2, 8}."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def siblings(core: int, system: Path = SYSTEM) -> set[int]:
    """The other hardware threads of a logical core's core; empty where it has none."""
    path = system / f"cpu/cpu{core}/topology/thread_siblings_list"
    return listed(path.read_text(encoding="ascii")) - {core} if path.exists() else set()


def machine(usable: Collection[int] | None = None, system: Path = SYSTEM) -> list[Core]:
    """The physical cores with threads that this process may use, in order of their NUMA nodes.

    As many as a control group or a Slurm job allows: of 1.5 CPUs one core.

    Args:
        usable: the logical cores; by default those that this process could use when it began.
        system: what describes them.
    """
    allowed, most = _at_first() if usable is None else (frozenset(usable), len(usable))
    nodes = {
        core: int(path.parent.name.removeprefix("node"))
        for path in system.glob("node/node[0-9]*/cpulist")
        for core in listed(path.read_text(encoding="ascii"))
    }
    found = {
        tuple(sorted(({core} | siblings(core, system)) & allowed)): nodes.get(core, 0)
        for core in allowed
    }
    cores = sorted((Core(node, threads) for threads, node in found.items()), key=_order)
    return cores[:most]


def divided(
    count: int, each: int | None, place: str, cores: Sequence[Core]
) -> tuple[CpuDevice, ...]:
    """The cores of ``count`` devices, none of them on two NUMA nodes where that can be avoided.

    Args:
        count: of devices.
        each: physical cores of a device; None: as many as there are for so many devices.
        place: one of ``LOADER_CORES``.
        cores: :func:`machine`.

    Raises:
        UserError: there are too few, or no place for the loader workers.
    """
    most = each_of(count, cores)
    if most == 0 or (each or most) > most:
        fit = len(_sets(each or 1, cores))
        raise UserError(
            f"devices {count}: this process may use {_said(len(cores))}, which {_is(fit)} of "
            f"{_said(each or 1)}; give {fit} at most. With cores_per_device '{SHARED}' devices "
            "share all cores, and their times are not ranked"
        )
    sets = _sets(each or most, cores)
    return tuple(_device(own, place) for own in sets[:count])


def each_of(count: int, cores: Sequence[Core]) -> int:
    """The most cores that each of ``count`` devices can have; 0 where there are too few."""
    return next((n for n in range(len(cores) // count, 0, -1) if len(_sets(n, cores)) >= count), 0)


def confine(devices: Sequence[CpuDevice]) -> None:
    """Pin this process to these devices' cores, and have it compute with their threads.

    Thread pools that are made from now on, as TensorFlow's and XLA's, have as many threads as the
    process has cores; OpenMP's and OpenBLAS's, of which each device has one, as a device has. What
    it forks from now on are loader workers, and go to their place.
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
    """The compute threads of each device that this process is confined to; None where it is not."""
    return _Now.threads


def processor(system: Path = SYSTEM, info: Path = INFO) -> dict[str, Any]:
    """Threads of a core, the clock and the instruction sets, as the system describes its first."""
    if not info.exists():  # not Linux
        return {}
    found: dict[str, Any] = {"threads_per_core": 1 + len(siblings(min(_at_first()[0]), system))}
    highest = system / "cpu/cpu0/cpufreq/cpuinfo_max_freq"  # in kHz
    with suppress(OSError, ValueError):
        found["clock_mhz"] = (
            int(highest.read_text(encoding="ascii")) / 1000
            if highest.exists()
            else float(of_cpu("cpu MHz", info))
        )
    known = f"{of_cpu('flags', info)} {of_cpu('Features', info)}".split()  # of x86, and of ARM
    return found | {"instruction_sets": [name for name in INSTRUCTION_SETS if name in known]}


def of_cpu(key: str, info: Path = INFO) -> str:
    """What Linux says of the first core, such as ``model name``; elsewhere the general name."""
    with suppress(OSError), info.open(encoding="utf-8") as lines:
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

    Args:
        core: that of the process.
        usable: those that both may use.
        threads: its :func:`siblings`.
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
    """What this process was confined to last."""

    threads: int | None = None
    loaders: frozenset[int] | set[int] = frozenset()

    @classmethod
    def place_worker(cls) -> None:
        """What it forks are loader workers."""
        os.sched_setaffinity(0, cls.loaders)


@cache
def _at_first() -> tuple[frozenset[int], int]:
    """The logical cores that this process could use before it was pinned, and how many at once."""
    if not hasattr(os, "sched_getaffinity"):  # not Linux
        count = os.cpu_count() or 1
        return frozenset(range(count)), count
    allowed = frozenset(os.sched_getaffinity(0))
    return allowed, max(1, int(min(core_limit(), len(allowed))))


def _order(core: Core) -> tuple[int, tuple[int, ...]]:
    return core.node, core.threads


def _sets(each: int, cores: Sequence[Core]) -> list[list[Core]]:
    """The sets of ``each`` cores that there are: within a NUMA node, or of whole nodes."""
    nodes: dict[int, list[Core]] = {}
    for core in cores:
        nodes.setdefault(core.node, []).append(core)
    if each > max(map(len, nodes.values())):
        return [list(cores[i : i + each]) for i in range(0, len(cores) - each + 1, each)]
    return [
        own[i : i + each] for own in nodes.values() for i in range(0, len(own) - each + 1, each)
    ]


def _device(own: Sequence[Core], place: str) -> CpuDevice:
    nodes = {core.node for core in own}
    node = nodes.pop() if len(nodes) == 1 else None
    if place == ON_SIBLINGS:
        siblings = [core.threads[1:] for core in own]
        if not all(siblings):
            raise UserError(
                f"loader_cores '{ON_SIBLINGS}': these cores have one hardware thread each; give "
                f"'{ON_DEVICE}' or '{ON_OWN}'"
            )
        computing = [core.threads[:1] for core in own]
        return CpuDevice(_flat(computing), len(own), _flat(siblings), node)
    threads = [core.threads for core in own]
    if place == ON_DEVICE:
        return CpuDevice(_flat(threads), len(own), _flat(threads), node)
    if len(own) == 1:
        raise UserError(
            f"loader_cores '{ON_OWN}': each device has one core here, and it has to compute; give "
            f"'{ON_DEVICE}', or fewer devices"
        )
    computing = threads[: len(own) - max(1, len(own) // FOR_LOADERS)]
    return CpuDevice(_flat(computing), len(computing), _flat(threads[len(computing) :]), node)


def _flat(threads: Iterable[Iterable[int]]) -> tuple[int, ...]:
    return tuple(sorted(number for each in threads for number in each))


def _said(cores: int) -> str:
    return f"{cores} core{'s' * (cores != 1)}"


def _is(devices: int) -> str:
    return "is 1 device" if devices == 1 else f"are {devices} devices"
