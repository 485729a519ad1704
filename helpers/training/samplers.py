"""Run a monitor's sampler on every host of a run, started by the host's first rank.

Rank 0 writes ``trace``, rank N ``trace-rankN``. Other ranks mark their phases in the same trace.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import gpumon
from gpumon.launch import compared_clocks
from helpers.frameworks import rank_info

TRACE = "trace"
OF_OTHERS = f"{TRACE}-rank*.jsonl"
"""The files of other hosts."""
_CLOCKS = ExitStack()
"""What compares this host's clock with others while it samples."""


def of_process(folder: Path, *, live: bool) -> gpumon.Monitor | gpumon.Marker:
    """What marks this process's phases: a monitor on its host's first rank, or a marker."""
    here = rank_info.here()
    if here is None:
        return gpumon.Monitor(folder / TRACE, live=live)
    machines = [address.rpartition(":")[0] for address in here.addresses]
    first = machines.index(machines[here.rank])
    monitor = gpumon.Monitor(folder / TRACE, rank=first)
    return monitor if here.rank == first else monitor.marker


def start(marks: gpumon.Monitor | gpumon.Marker) -> None:
    """Begin to sample, if this process does; with several hosts, compare their clocks."""
    if not isinstance(marks, gpumon.Monitor):
        return
    marks.start()
    here = rank_info.here()
    if here is not None and here.nodes > 1 and not here.virtual:
        first, report = marks.path.with_name(TRACE), marks.marker.write_clock_offset
        _CLOCKS.enter_context(compared_clocks(first, here.rank, report))


def stop(marks: gpumon.Monitor | gpumon.Marker) -> None:
    """End sampling; harmless where nothing is sampled."""
    if isinstance(marks, gpumon.Monitor):
        _CLOCKS.close()
        marks.stop()


def clear(folder: Path) -> None:
    """Remove the traces of an older run's other hosts from the folder."""
    for path in folder.glob(OF_OTHERS):
        path.unlink()


def read(folder: Path) -> gpumon.Trace:
    """A run's trace, from all its hosts."""
    return gpumon.read([folder / TRACE, *sorted(folder.glob(OF_OTHERS))])
