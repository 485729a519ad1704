"""This module reads CPU and memory use of the recorded process tree from Linux's /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress

from gpumon.compat import zip_strict
from gpumon.procfs import TICK, slurp
from gpumon.series import Series, Source, Unavailable

MIB = 2**20
PAGE = os.sysconf("SC_PAGE_SIZE")


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
                grown = [g + n - t for g, n, t in zip_strict(grown, now_used, then)]
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
        with suppress(OSError), os.scandir(f"/proc/{pid}/task") as threads:
            for thread in threads:
                with suppress(OSError, ValueError):
                    waiting += [int(child) for child in slurp(f"{thread.path}/children").split()]
