"""Run a monitor's sampler on every host of a run, and align their traces in time.

The first rank of each host starts one: rank 0 writes ``trace``, rank N ``trace-rankN`` in the same
folder. The host's other ranks mark their phases in the same trace. The clocks of several machines
differ (``helpers.launch.clocks`` measures by how much), so :func:`align` converts the start of each
trace to rank 0's clock and records the correction in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import gpumon
from data_prep.files import write_atomic
from gpumon.trace_files import MARKS, SAMPLES, marks_file, samples_file
from helpers.frameworks import rank_info
from helpers.launch.clocks import Bounds

TRACE = "trace"
START, WALL = "start (monotonic s)", "start (unix s)"


def of_process(folder: Path, *, live: bool) -> gpumon.Monitor | gpumon.Marker:
    """What marks this process's phases: a monitor on its host's first rank, else a marker.

    A monitor that is ``live`` draws what it samples.
    """
    here = rank_info.here()
    if here is None:
        return gpumon.Monitor(folder / TRACE, live=live)
    machines = [address.rpartition(":")[0] for address in here.addresses]
    first = machines.index(machines[here.rank])
    if here.rank == first:  # the monitor adds its number to the name
        return gpumon.Monitor(folder / TRACE, rank=first)
    return gpumon.Marker(marks_file(_prefix(folder, first)))


def start(marks: gpumon.Monitor | gpumon.Marker) -> None:
    """Begin to sample, where this process does."""
    if isinstance(marks, gpumon.Monitor):
        marks.start()


def stop(marks: gpumon.Monitor | gpumon.Marker) -> None:
    """End sampling; harmless where nothing is sampled."""
    if isinstance(marks, gpumon.Monitor):
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
    """Remove those of a run that was in the folder before."""
    for prefix in prefixes(folder).values():
        for ending in (SAMPLES, MARKS):
            prefix.with_name(prefix.name + ending).unlink(missing_ok=True)


def read(folder: Path) -> gpumon.Trace:
    """A run's trace, of all its hosts."""
    return gpumon.read([folder / TRACE, *prefixes(folder).values()])


def began(folder: Path) -> float | None:
    """When the sampling of rank 0's trace began, of no other; None: no trace."""
    header = _header(folder / TRACE)
    return None if header is None else float(header[START])


def align(folder: Path, ahead: Mapping[int, Bounds], hosts: Iterable[str]) -> list[dict[str, Any]]:
    """Put the traces of all hosts on the axis of rank 0's, once their samplers have stopped.

    ``ahead`` is by how much each rank's monotonic clock is ahead of rank 0's, ``hosts`` each
    rank's. Returns the record's ``cluster.clocks``: by how many seconds each host's wall clock was
    ahead of rank 0's, and how far the truth is from that at most.
    """
    names, found = list(hosts), []
    base = _header(folder / TRACE)
    for rank, prefix in prefixes(folder).items():
        if rank not in ahead or base is None or (own := _header(prefix)) is None:
            continue
        began = base[WALL] + own[START] - ahead[rank].middle - base[START]
        apart, within = own[WALL] - began, ahead[rank].within
        found.append({"host": names[rank], "ahead": apart, "within": within})
        said = f"this host's wall clock was {apart:+.6f} s ahead, within {within:.6f} s; corrected"
        clocks = {"ahead (s)": ahead[rank].middle, "within (s)": within, "wall (s)": apart}
        measured = {"boot": base["boot"], **clocks} if base.get("boot") else None
        clock = f"{own['clock']}; {said}"
        _rewrite(prefix, own | {WALL: began, "clock": clock, "clock offset": measured})
    return found


def _prefix(folder: Path, rank: int) -> Path:
    return folder / (f"{TRACE}-rank{rank}" if rank else TRACE)


def _header(prefix: Path) -> dict[str, Any] | None:
    """A trace's first line; None where there is none."""
    with suppress(OSError, ValueError), samples_file(prefix).open("rb") as file:
        found = json.loads(file.readline())
        return found if isinstance(found, dict) and {START, WALL, "clock"} <= found.keys() else None
    return None


def _rewrite(prefix: Path, header: Mapping[str, Any]) -> None:
    path = samples_file(prefix)
    rest = path.read_bytes().partition(b"\n")[2]
    write_atomic(path, json.dumps(header).encode() + b"\n" + rest, durable=False)
