"""Profile steps of every rank, in one file with the monitor's lanes.

The framework's own profiler writes a trace for each rank, on a clock of its own. Each trace has a
range whose name is the wall time at which it began, so rank 0 can put all of them on one axis.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

from data_prep.files import write_atomic
from gpumon import MonitorError
from gpumon.export import BASE, export, read_profile
from gpumon.recording import Mark
from helpers.launch import samplers
from helpers.training.step_clock import Observes

FILE = "profile.json"
PHASE = "profiled steps"
MARK = "wall clock in ns: "
FIRST_PROCESS = 1_000_000_000
"""Numbers of profiled processes: above the machine's, and below those of gpumon's devices."""
OF_A_RANK = 1000


class Steps:
    """Names each step in a profile, as a ``StepClock``'s observer."""

    shares = 1

    def __init__(self, named: Callable[[str], Any], steps: int) -> None:
        self._ranges = (named(f"step {number + 1}") for number in range(steps))
        self._open = ExitStack()
        self.step()

    def batch(self, batch: Any) -> None:
        """The next step has begun already: waiting for its batch is part of it."""

    def step(self) -> None:
        """A step was queued, and the next one begins, if there is one."""
        self._open.close()
        for each in islice(self._ranges, 1):
            self._open.enter_context(each)


def file_of(folder: Path, rank: int) -> Path:
    """Where a rank writes its trace, until rank 0 has merged it."""
    return folder / f"profile-rank{rank}.json"


def take(
    framework: ModuleType,
    devices: Sequence[Any],
    file: Path,
    steps: int,
    train: Callable[[Observes], Any],
) -> str:
    """Take steps under the framework's profiler; say why it wrote no file, or nothing.

    The steps are taken in any case: the other ranks wait for their all-reduce.
    """
    file.unlink(missing_ok=True)
    named: Callable[[str], Any] = nullcontext
    profiler, why = None, ""
    try:
        profiler = framework.profiler()
        named = profiler.range
    except Exception as error:
        why = _first_line(error)
    with named("profile"):  # the first range may take longer
        pass
    with named(f"{MARK}{time.time_ns()}"):
        pass
    train(Steps(named, steps))
    framework.synchronize(devices)
    try:
        if profiler is not None:
            profiler.write(file)
    except Exception as error:
        why = _first_line(error)
    return why


def merge(folder: Path, failures: Sequence[str], ahead: Sequence[float] = ()) -> list[str]:
    """Write all ranks' traces and the monitor's lanes of these seconds to one file.

    Args:
        failures: what :func:`take` said, for each rank.
        ahead: seconds by which each rank's wall clock is ahead of rank 0's; empty: all agree.

    Returns:
        Lines for the user: where the file is, and what it lacks.
    """
    found, missing, processes = {}, dict[str, list[str]](), dict[int, int]()
    for rank, why in enumerate(failures):
        try:
            if why:
                raise MonitorError(why)
            began, events, numbers = _of_rank(file_of(folder, rank), rank)
            processes = numbers | processes
            found[rank] = began - round(1e9 * (ahead[rank] if ahead else 0)), events
        except MonitorError as error:
            missing.setdefault(str(error), []).append(str(rank))
    said = [f"No profile of rank {', '.join(ranks)}: {why}." for why, ranks in missing.items()]
    if not found:
        return said
    base, target = min(began for began, _ in found.values()), folder / FILE
    for began, events in found.values():
        for event in events:
            if "ts" in event:
                event["ts"] += (began - base) / 1e3
    whole = {BASE: base, "traceEvents": [each for _, events in found.values() for each in events]}
    try:
        write_atomic(target, json.dumps(whole).encode())
        for rank in found:
            file_of(folder, rank).unlink()
        trace = samplers.read(folder)
        marks = [mark for mark in trace.recording.marks if mark.name == PHASE]
        window = min(mark.start for mark in marks), max(mark.end for mark in marks)
        marks = [_of_profile(mark, processes) for mark in trace.recording.marks]
        export(replace(trace.recording, marks=marks), target, profile=target, window=window)
    except (OSError, ValueError, MonitorError) as error:
        said.append(f"The profile is not whole: {_first_line(error)}.")
    ranks = f"{len(found)} rank{'s' * (len(found) > 1)}"
    return [f"Profile of {ranks}: {target}; open it in Perfetto.", *said]


def _of_profile(mark: Mark, processes: Mapping[int, int]) -> Mark:
    """A phase in the process that the profile has for the one that ran it."""
    number = processes.get(mark.process) if isinstance(mark.process, int) else None
    return mark if number is None else replace(mark, process=number)


def _of_rank(file: Path, rank: int) -> tuple[int, list[dict[str, Any]], dict[int, int]]:
    """When a trace's mark was made, its events, in microseconds from there, and its processes.

    The processes' numbers and names tell the rank; the last result has them by what they were.
    Identifiers of arrows are unique to the rank. Notes of the profiler about itself are left out:
    their process is no number.
    """
    events = read_profile(file)["traceEvents"]
    if not all(isinstance(e, dict) and isinstance(e.get("ts", 0), int | float) for e in events):
        raise MonitorError(f"{file} is not a profile in Chrome's format: it has other events")
    marks = [each for each in events if str(each.get("name", "")).startswith(MARK)]
    wall = str(marks[0]["name"]).removeprefix(MARK) if marks else ""
    if not wall.isdecimal() or "ts" not in marks[0]:
        raise MonitorError(f"{file} is not a profile of a run: it has no event {MARK!r}")
    start, names = marks[0]["ts"], {}
    numbers: dict[str, dict[str, int]] = {"pid": {}, "id": {}}
    firsts = {"pid": FIRST_PROCESS + OF_A_RANK * rank, "id": rank << 32}
    kept = [
        each
        for each in events
        if str(each.get("pid")).isdecimal() and each.get("name") != "process_sort_index"
    ]
    for event in kept:
        for key, known in numbers.items():
            if key in event:
                event[key] = known.setdefault(str(event[key]), firsts[key] + len(known))
        if event.get("ph") == "M":
            event.pop("ts", None)  # a name holds for all times
        if "ts" in event:
            event["ts"] -= start
        if event.get("name") == "process_name" and isinstance(event.get("args"), Mapping):
            names[event.get("pid")] = event["args"].get("name", "")
    kept = [each for each in kept if each.get("name") != "process_name"]
    for was, number in numbers["pid"].items():
        named = {"name": f"rank {rank} {names.get(number) or was}"}
        kept.append({"ph": "M", "name": "process_name", "pid": number, "args": named})
    return int(wall), kept, {int(was): number for was, number in numbers["pid"].items()}


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
