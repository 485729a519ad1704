"""This module reads from Linux the CPU and memory that the recorded program uses, and its limits.

CPU affinity and cpusets say on which CPUs it may run; control groups (version 2) limit its
processor time and its memory, each group those below it too. What they leave is the program's
100 %.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from gpumon.series import Series, Source, Unavailable

MIB = 2**20
TICK = 1 / os.sysconf("SC_CLK_TCK")
"""Seconds."""
PAGE = os.sysconf("SC_PAGE_SIZE")
PROC = Path("/proc")
GROUPS = Path("/sys/fs/cgroup")
SHORTEST = 0.1
"""Seconds between two readings of counters; the kernel's ticks are 10 ms."""


def process_source(root: int) -> Source:
    """The tree under process ``root``, without the sampler itself."""
    own = os.getpid()
    used: dict[int, int] = {}
    before = [0.0]

    def read() -> list[float | None]:
        now = time.monotonic()
        pages = grown = 0
        seen: dict[int, int] = {}
        for pid in tree(root, own):
            with suppress(OSError, IndexError, ValueError):
                # After the name, which may hold anything: utime and stime are fields 14 and 15.
                fields = slurp(f"/proc/{pid}/stat").rpartition(b")")[2].split()
                seen[pid] = int(fields[11]) + int(fields[12])
                pages += int(fields[21])
                # A process that is new since the last reading did all its work since then.
                grown += seen[pid] - used.get(pid, 0 if used else seen[pid])
        if not seen:
            raise Unavailable(f"the watched process {root} is gone or /proc is not readable")
        wall, first = now - before[0], not used
        before[0] = now
        used.clear()
        used.update(seen)
        share = None if first or wall <= 0 else 100 * TICK * max(0, grown) / wall
        return [share, pages * PAGE / MIB, len(seen)]

    api = f"/proc of process {root} and its descendants; 100 % is one core"
    memory = "/proc, resident memory summed (pages shared by processes count in each)"
    series = [
        Series("process/cpu (%)", api, 1),
        Series("process/memory (MiB)", memory),
        Series("process/processes (count)", "/proc"),
    ]
    return Source("process", series, read, 1.0)


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


def limit_source(root: int) -> Source:
    """What process ``root`` may use of CPU and memory; no share where it may use everything."""
    count = os.cpu_count() or 1
    machine = os.sysconf("SC_PHYS_PAGES") * PAGE / MIB
    before: dict[object, tuple[float, float]] = {}
    groups = _groups(root)

    def cpu() -> list[float | None]:
        now = time.monotonic()
        cpus = _affinity(root)
        shares: list[float | None] = []
        cores = float(len(cpus))
        if len(cpus) < count:
            times = busy_and_total(cpus).values()
            busy, total = sum(b for b, _ in times), sum(t for _, t in times)
            shares.append(_rate(before, frozenset(cpus), busy, total))
        for folder in groups:
            quota, _, period = _text(folder / "cpu.max").partition(" ")
            # A limit of more cores than there are for it limits nothing.
            if quota.isdigit() and (limit := int(quota) / int(period)) < len(cpus):
                used = _number(folder / "cpu.stat", "usage_usec") / 1e6
                shares.append(_rate(before, (folder, limit), used, now * limit))
                cores = min(cores, limit)
        known = [share for share in shares if share is not None]
        # The limit that is nearest holds the program back, whichever it is.
        return [min(100.0, max(known)) if known else None, cores]

    def memory() -> list[float | None]:
        limits = []
        for folder in groups:
            limit = _text(folder / "memory.max")
            if limit.isdigit() and int(limit) / MIB < machine:
                idle = _number(folder / "memory.stat", "inactive_file")
                held = max(0, _number(folder / "memory.current") - idle)
                limits.append((int(limit) / MIB, held / MIB))
        amount, used = min(limits, key=lambda limit: limit[0] - limit[1], default=(machine, None))
        return [used, amount]

    api = "the fullest of: busy share of the CPUs in its affinity, cgroups' time of their quota"
    held = "the cgroup's memory without page cache that can be dropped at once"
    series = [
        Series("process/CPU allowance used (%)", api, 1),
        Series("process/CPU allowance (cores)", "CPU affinity and cgroups' quotas", 2),
        Series("process/memory allowance used (MiB)", held),
        Series("process/memory allowance (MiB)", "cgroups' limits"),
    ]
    return Source("process", series, lambda: [*cpu(), *memory()], 1.0)


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


def _groups(process: int) -> list[Path]:
    """The folders of a process's control group and those above it that have limits of version 2."""
    lines = _text(PROC / str(process) / "cgroup").splitlines()
    path = next((line[3:] for line in lines if line.startswith("0::")), None)
    if path is None:
        return []
    folder = GROUPS / path.lstrip("/")
    if ".." in path or not folder.is_dir():
        folder = GROUPS  # a container's own group is all that it sees
    groups = [each for each in (folder, *folder.parents) if each.is_relative_to(GROUPS)]
    return [
        each for each in groups if (each / "cpu.max").exists() or (each / "memory.max").exists()
    ]


def _text(file: Path) -> str:
    """A small file's text; empty if it cannot be read, as a limit is that is not set."""
    with suppress(OSError, ValueError):
        return slurp(str(file)).decode().strip()
    return ""


def _number(file: Path, key: str = "") -> int:
    """A control group's figure, behind its key where the file has several."""
    for line in _text(file).splitlines():
        name, _, value = line.rpartition(" ")
        if name == key and value.isdigit():
            return int(value)
    raise Unavailable(f"{file} has no {key or 'number'}")
