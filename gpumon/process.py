"""This module reads from Linux what the recorded program uses of CPU and memory, and may use.

CPU affinity and cpusets say on which CPUs it may run; cgroups, version 1 and 2, limit its processor
time and its memory, each group those below it too. What they leave is the program's 100 %.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gpumon.series import Series, Source, Unavailable

MIB = 2**20
TICK = 1 / os.sysconf("SC_CLK_TCK")
"""Seconds."""
PAGE = os.sysconf("SC_PAGE_SIZE")
PROC = Path("/proc")
LOOK_AGAIN = 5.0
"""Seconds after which limits are read again: most never change."""
SHORTEST = 0.1
"""Seconds between two readings of counters; the kernel's ticks are 10 ms."""


def process_source(root: int) -> Source:
    """The tree under process ``root``, without the sampler itself."""
    own = os.getpid()
    used: dict[int, tuple[int, int, int]] = {}
    before = [0.0]

    def read() -> list[float | None]:
        now = time.monotonic()
        pages = 0
        grown = [0, 0, 0]
        seen: dict[int, tuple[int, int, int]] = {}
        for pid in tree(root, own):
            with suppress(OSError, IndexError, ValueError):
                # After the name, which may hold anything: utime and stime are fields 14 and 15,
                # page faults 10 and, those that had to read the disk, 12.
                fields = slurp(f"/proc/{pid}/stat").rpartition(b")")[2].split()
                now_used = int(fields[11]) + int(fields[12]), int(fields[7]), int(fields[9])
                seen[pid] = now_used
                pages += int(fields[21])
                # A process that is new since the last reading did all its work since then.
                then = used.get(pid, (0, 0, 0) if used else now_used)
                grown = [g + n - t for g, n, t in zip(grown, now_used, then)]
        if not seen:
            raise Unavailable(f"the watched process {root} is gone or /proc is not readable")
        wall = now - before[0]
        first = not used
        before[0] = now
        used.clear()
        used.update(seen)
        rates: list[float | None] = [None, None, None]
        if not first and wall > 0:
            rates = [max(0, amount) / wall for amount in grown]
        share = None if rates[0] is None else 100 * TICK * rates[0]
        return [share, pages * PAGE / MIB, float(len(seen)), rates[1], rates[2]]

    api = f"/proc of process {root} and its descendants; 100 % is one core"
    memory = "/proc, resident memory summed (pages shared by processes count in each)"
    return Source(
        "process",
        [
            Series("process/cpu (%)", api, 1),
            Series("process/memory (MiB)", memory),
            Series("process/processes (count)", "/proc"),
            Series("process/page faults (1/s)", "/proc, those served from memory"),
            Series("process/major page faults (1/s)", "/proc, those that had to read the disk", 1),
        ],
        read,
        1.0,
    )


def slurp(path: str) -> bytes:
    """A small file, read at once."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 65536)
    finally:
        os.close(file)


def tree(root: int, besides: int | None = None) -> Iterator[int]:
    """A process and its descendants, without walking every process of the machine.

    besides: one of them that is left out, with its own.
    """
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        if pid == besides:
            continue
        yield pid
        with suppress(OSError), os.scandir(f"{PROC}/{pid}/task") as threads:
            for thread in threads:
                with suppress(OSError, ValueError):
                    waiting += [int(child) for child in slurp(f"{thread.path}/children").split()]


@dataclass(frozen=True)
class Limit:
    """A cgroup's limit in cores or MiB, and a function that returns how much of it is used."""

    amount: float
    used: Callable[[], float]


def limit_sources(root: int) -> list[Source]:
    """What process ``root`` may use of CPU and memory; no share where it may use everything."""
    return [_cpu(root), _memory(root)]


def _cpu(root: int) -> Source:
    count = os.cpu_count() or 1
    looked: list[tuple[float, list[Limit]]] = []
    before: dict[object, tuple[float, float]] = {}

    def read() -> list[float | None]:
        now = time.monotonic()
        cpus = _affinity(root)
        if not looked or now - looked[0][0] > LOOK_AGAIN:
            looked[:] = [(now, cpu_limits(root))]
        # A limit of more cores than there are for it limits nothing.
        limits = [limit for limit in looked[0][1] if limit.amount < len(cpus)]
        shares = []
        if len(cpus) < count:
            times = busy_and_total(cpus).values()
            busy, total = sum(b for b, _ in times), sum(t for _, t in times)
            shares.append(_rate(before, frozenset(cpus), busy, total))
        for place, limit in enumerate(limits):
            key = place, limit.amount  # groups may have equal limits, and each its own use
            shares.append(_rate(before, key, limit.used(), now * limit.amount))
        cores = min([float(len(cpus)), *(limit.amount for limit in limits)])
        known = [share for share in shares if share is not None]
        # The limit that is nearest holds the program back, whichever it is.
        return [min(100.0, max(known)) if known else None, cores]

    api = "the fullest of: busy share of the CPUs in its affinity, cgroups' time of their quota"
    return Source(
        "process",
        [
            Series("process/CPU allowance used (%)", api, 1),
            Series("process/CPU allowance (cores)", "CPU affinity and cgroups' quotas", 2),
        ],
        read,
        0.5,
    )


def _memory(root: int) -> Source:
    looked: list[tuple[float, list[Limit]]] = []
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / MIB

    def read() -> list[float | None]:
        now = time.monotonic()
        if not looked or now - looked[0][0] > LOOK_AGAIN:
            looked[:] = [(now, [one for one in memory_limits(root) if one.amount < most])]
        if not looked[0][1]:
            return [None, most]
        least = min(looked[0][1], key=lambda limit: limit.amount - limit.used())
        return [least.used(), least.amount]

    api = "the cgroup's memory without page cache that can be dropped at once"
    return Source(
        "process",
        [
            Series("process/memory allowance used (MiB)", api),
            Series("process/memory allowance (MiB)", "cgroups' limits"),
        ],
        read,
        1.0,
    )


def _rate(
    before: dict[object, tuple[float, float]], key: object, used: float, there: float
) -> float | None:
    """Percent of what was there since the reading before that was used; None for the first."""
    then = before.get(key)
    if then is not None and there - then[1] < SHORTEST:
        return None
    before[key] = (used, there)
    if then is None or used < then[0]:
        return None
    return 100 * (used - then[0]) / (there - then[1])


def _affinity(root: int) -> set[int]:
    """The CPUs of a process; the kernel leaves out those that its cpuset does not have."""
    try:
        return os.sched_getaffinity(root)
    except OSError as error:
        raise Unavailable(f"the watched process {root} is gone: {error.strerror}") from error


def busy_and_total(cpus: Collection[int]) -> dict[int, tuple[float, float]]:
    """Seconds of each of these CPUs that the kernel lists; what a hypervisor took is busy."""
    wanted = {f"cpu{number}".encode(): number for number in cpus}
    found = {}
    with open(f"{PROC}/stat", "rb") as lines:  # noqa: PTH123 (read line by line, often)
        for line in lines:
            if not line.startswith(b"cpu"):
                break
            name, *counts = line.split()
            if name in wanted:
                # user, nice, system, idle, iowait, irq, softirq, steal; guests are in user.
                ticks = [int(count) for count in counts[:8]]
                total = sum(ticks) * TICK
                found[wanted[name]] = total - (ticks[3] + ticks[4]) * TICK, total
    return found


# --- cgroups ---------------------------------------------------------------------------------


def cpu_limits(process: int) -> list[Limit]:
    """The quotas of processor time over a process, in cores."""
    limits = []
    groups = cgroups_of(process)
    for folder in groups.get("v2", []):
        quota, _, period = _read(folder / "cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit() and int(period):
            used = _stat(folder / "cpu.stat", "usage_usec", 1e-6)
            limits.append(Limit(int(quota) / int(period), used))
    counted = {folder.name: folder for folder in groups.get("cpuacct", [])}
    for folder in groups.get("cpu", []):
        quota, period = (_read(folder / f"cpu.cfs_{what}_us") for what in ("quota", "period"))
        if quota.isdigit() and period.isdigit() and int(period) and folder.name in counted:
            file = counted[folder.name] / "cpuacct.usage"
            limits.append(Limit(int(quota) / int(period), _counter(file, 1e-9)))
    return limits


def memory_limits(process: int) -> list[Limit]:
    """The limits of memory over a process, in MiB."""
    limits = []
    groups = cgroups_of(process)
    for version, most, used, cache in (
        ("v2", "memory.max", "memory.current", "inactive_file"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        for folder in groups.get(version, []):
            amount = _read(folder / most)
            if amount.isdigit():
                held = _counter(folder / used, 1 / MIB)
                idle = _stat(folder / "memory.stat", cache, 1 / MIB)
                limits.append(Limit(int(amount) / MIB, _less(held, idle)))
    return limits


def cgroups_of(process: int) -> dict[str, list[Path]]:
    """A process's folder in each hierarchy that can be seen, and those above it.

    By the controller, such as ``cpu`` and ``memory``, for version 1; ``v2`` for version 2.
    """
    return _folders(*(_read(PROC / str(process) / name) for name in ("cgroup", "mountinfo")))


@functools.lru_cache(maxsize=4)
def _folders(groups: str, mounts: str) -> dict[str, list[Path]]:
    """What those two files of a process come to: they hardly ever change."""
    paths: dict[str, str] = {}
    for line in groups.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for name in ["v2"] if number == "0" and not controllers else controllers.split(","):
            paths[name] = path
    found: dict[str, list[Path]] = {}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        mount = Path(fields[4].replace("\\040", " "))
        for name in ["v2"] if kind[0] == "cgroup2" else kind[2].split(","):
            if name in paths:
                folder = mount / _below(paths[name], fields[3])
                found[name] = [p for p in (folder, *folder.parents) if p.is_relative_to(mount)]
    return found


def _below(path: str, root: str) -> str:
    """A group's path below the one that is mounted; the mount itself where it is not below."""
    inside = Path(path).is_relative_to(root) and ".." not in path
    return str(Path(path).relative_to(root)) if inside else ""


def _read(file: Path) -> str:
    """A small file's text; empty where it cannot be read, as a limit is that is not set."""
    with suppress(OSError, ValueError):
        return slurp(str(file)).decode().strip()
    return ""


def _counter(file: Path, scale: float) -> Callable[[], float]:
    def read() -> float:
        try:
            return int(slurp(str(file))) * scale
        except (OSError, ValueError) as error:
            raise Unavailable(f"{file}: {error}") from error

    return read


def _stat(file: Path, name: str, scale: float) -> Callable[[], float]:
    def read() -> float:
        for line in _read(file).splitlines():
            key, _, value = line.partition(" ")
            if key == name and value.isdigit():
                return int(value) * scale
        raise Unavailable(f"{file} has no {name}")

    return read


def _less(held: Callable[[], float], idle: Callable[[], float]) -> Callable[[], float]:
    return lambda: max(0.0, held() - idle())
