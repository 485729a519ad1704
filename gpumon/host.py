"""This module reads the series of the host and of the recorded program, also without a GPU.

CPU affinity, and control groups of version 2 with those above them, limit a program; what they
leave is its 100 %.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from gpumon.series import Series, Source, Unavailable, per_second

MIB = 2**20
NOT_DISKS = ("loop", "ram", "zram", "dm-", "md")
"""Layers over other disks, which would count the same bytes again, and disks in memory."""
TICK = 1 / os.sysconf("SC_CLK_TCK")
"""Seconds."""
PAGE = os.sysconf("SC_PAGE_SIZE")
PROC = Path("/proc")
GROUPS = Path("/sys/fs/cgroup")
SHORTEST = 0.1
"""Seconds between two readings of counters; the kernel's ticks are 10 ms."""


def host_description() -> dict[str, Any]:
    return {
        "name": "host",
        "kind": "host",
        "cores": os.cpu_count() or 1,
        "memory total (MiB)": round(psutil.virtual_memory().total / MIB),
    }


def host_sources() -> list[Source]:
    return [_cpu(), _memory(), _disk(), _network()]


def _cpu() -> Source:
    """Busy shares of all cores together and of each: waiting for a disk is idle."""
    cores = range(os.cpu_count() or 1)
    before = busy_and_total(cores)

    def read() -> list[float | None]:
        now = busy_and_total(cores)
        if now.keys() != before.keys():
            raise Unavailable("the number of cores has changed", permanent=True)
        grown = [(now[c][0] - before[c][0], now[c][1] - before[c][1]) for c in before]
        before.update(now)
        grown.insert(0, _summed(grown))
        # The kernel counts in ticks of 10 ms: over less than 50 ms a share means nothing.
        return [100 * busy / total if total >= 0.05 else None for busy, total in grown]

    api = "/proc/stat, busy share since the reading before"
    series = [Series("host/cpu (%)", api, 1)]
    series += [Series(f"host/cpu{number} (%)", api) for number in before]
    return Source("host", series, read, 1.0)


def _summed(pairs: Collection[tuple[float, float]]) -> tuple[float, float]:
    return sum(busy for busy, _ in pairs), sum(total for _, total in pairs)


def _memory() -> Source:
    def read() -> tuple[float]:
        now = psutil.virtual_memory()
        return ((now.total - now.available) / MIB,)

    api = "psutil.virtual_memory, total less available"
    return Source("host", [Series("host/memory used (MiB)", api)], read, every=1.0)


def _rates(
    api: str, fields: dict[str, str], counters: Callable[[], Any], counts: Callable[[str], bool]
) -> Source:
    """MiB/s from byte counters that only grow, summed over the devices that count."""
    rates = per_second(MIB, least=0.1)

    def read() -> list[float | None]:
        found: dict[str, Any] = {}
        with suppress(FileNotFoundError):  # some containers show no disks at all
            found = counters() or {}
        counted = [each for name, each in found.items() if counts(name)]
        if not counted:
            raise Unavailable("the system shows no such device (a container?)", permanent=True)
        return rates([sum(getattr(each, field) for each in counted) for field in fields.values()])

    return Source("host", [Series(f"host/{name} (MiB/s)", api, 2) for name in fields], read, 2.0)


def _disk() -> Source:
    return _rates(
        "psutil.disk_io_counters, all physical disks",
        {"disk read": "read_bytes", "disk written": "write_bytes"},
        lambda: psutil.disk_io_counters(perdisk=True, nowrap=False),
        _physical,
    )


@functools.cache
def _physical(name: str) -> bool:
    """Whether a device is a disk: its partitions, which count again, are shown too."""
    whole = Path("/sys/block", name.replace("/", "!")).exists()
    return whole and not name.startswith(NOT_DISKS)


def _network() -> Source:
    return _rates(
        "psutil.net_io_counters, all interfaces except the loopback",
        {"network received": "bytes_recv", "network sent": "bytes_sent"},
        lambda: psutil.net_io_counters(pernic=True, nowrap=False),
        lambda name: name != "lo",
    )


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
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 65536)
    finally:
        os.close(file)


def tree(root: int, besides: int | None = None) -> Iterator[int]:
    """A process and its descendants, without walking every process of the machine.

    besides: a descendant that is left out, with its own descendants.
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
        cpus = os.sched_getaffinity(root)
        shares: list[float | None] = []
        cores = float(len(cpus))
        if len(cpus) < count:
            shares.append(_rate(before, frozenset(cpus), *_summed(busy_and_total(cpus).values())))
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


def busy_and_total(cpus: Collection[int]) -> dict[int, tuple[float, float]]:
    """Busy and total seconds of each of these CPUs; what a hypervisor took counts as busy."""
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
    """The folders of a process's control group (version 2) and those above it."""
    lines = _text(PROC / str(process) / "cgroup").splitlines()
    path = next((line[3:] for line in lines if line.startswith("0::")), None)
    if path is None:
        return []
    folder = GROUPS / path.lstrip("/")
    if ".." in path or not folder.is_dir():
        folder = GROUPS  # a container's own group is all that it sees
    groups = [each for each in (folder, *folder.parents) if each.is_relative_to(GROUPS)]
    return [each for each in groups if _text(each / "cpu.max") + _text(each / "memory.max")]


def _text(file: Path) -> str:
    """A small file's text; empty where it cannot be read, as a limit is that is not set."""
    with suppress(OSError, ValueError):
        return slurp(str(file)).decode().strip()
    return ""


def _number(file: Path, key: str = "") -> int:
    """A control group's value, behind its key where the file has several."""
    for line in _text(file).splitlines():
        name, _, value = line.rpartition(" ")
        if name == key:
            return int(value)
    raise Unavailable(f"{file} has no {key or 'number'}")
