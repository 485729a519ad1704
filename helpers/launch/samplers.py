"""Run a monitor's sampler on every host of a run.

The first rank of each host starts one: rank 0 writes ``trace``, rank N ``trace-rankN`` in the same
folder. The host's other ranks mark their phases in the same trace. gpumon measures how far the
clocks of several machines are apart while it samples, and corrects and states it when it reads.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import gpumon
from gpumon.launch import compared_clocks
from gpumon.trace_files import MARKS, SAMPLES, marks_file
from helpers.frameworks import rank_info

TRACE = "trace"
_CLOCKS = ExitStack()
"""What compares this host's clock with others while it samples."""


def of_process(folder: Path, *, live: bool) -> gpumon.Monitor | gpumon.Marker:
    """What marks this process's phases: a monitor on its host's first rank, or a marker."""
    here = rank_info.here()
    if here is None:
        return gpumon.Monitor(folder / TRACE, live=live)
    machines = [address.rpartition(":")[0] for address in here.addresses]
    first = machines.index(machines[here.rank])
    if here.rank == first:  # the monitor adds its number to the name
        return gpumon.Monitor(folder / TRACE, rank=first)
    return gpumon.Marker(marks_file(_prefix(folder, first)))


def start(marks: gpumon.Monitor | gpumon.Marker) -> None:
    """Begin to sample, if this process does; with several hosts, compare their clocks."""
    if not isinstance(marks, gpumon.Monitor):
        return
    marks.start()
    here = rank_info.here()
    if here is None or here.nodes == 1 or here.virtual:
        return
    first = marks.path.with_name(TRACE)
    report = marks.marker.write_clock_offset
    _CLOCKS.enter_context(compared_clocks(first, here.rank, report))


def stop(marks: gpumon.Monitor | gpumon.Marker) -> None:
    """End sampling; harmless where nothing is sampled."""
    if isinstance(marks, gpumon.Monitor):
        _CLOCKS.close()
        marks.stop()


def prefixes(folder: Path) -> dict[int, Path]:
    """The traces of other hosts in a run's folder, by the number of each one's first rank."""
    found = {}
    for path in folder.glob(f"{TRACE}-rank*{SAMPLES}"):
        number = path.name.removeprefix(f"{TRACE}-rank").removesuffix(SAMPLES)
        if number.isdecimal():
            found[int(number)] = _prefix(folder, int(number))
    return dict(sorted(found.items()))


def clear(folder: Path) -> None:
    """Remove the traces of an older run from the folder."""
    for prefix in prefixes(folder).values():
        for ending in (SAMPLES, MARKS):
            prefix.with_name(prefix.name + ending).unlink(missing_ok=True)


def read(folder: Path) -> gpumon.Trace:
    """A run's trace, from all its hosts."""
    return gpumon.read([folder / TRACE, *prefixes(folder).values()])


def _prefix(folder: Path, rank: int) -> Path:
    return folder / (f"{TRACE}-rank{rank}" if rank else TRACE)
