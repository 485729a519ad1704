"""The sampling process: ``python -m gpumon.sampler CONFIG``, started by Monitor alone.

It reads every source on a drift-free schedule of the monotonic clock and appends to the trace,
one unbuffered write a sample, so that a kill loses at most the sample being written. It ends when
told to through its standard input, when its parent is gone, or on SIGTERM; SIGINT is the
program's and is ignored here. What it has to tell, it prints: ``ready`` or ``warning: ...``.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import psutil

from gpumon.boot import boot
from gpumon.compat import strictly
from gpumon.files import samples_file
from gpumon.gaps import longest
from gpumon.gpu import gpu_sources
from gpumon.host import host_description, host_sources, sampler_memory
from gpumon.lines import FORMAT, HUGE
from gpumon.meaning import shared
from gpumon.nvml import close_nvml, find_devices, open_nvml, with_parents
from gpumon.series import Series, Source, Unavailable
from gpumon.sharing import Family
from gpumon.writer import Writer, say

if sys.platform == "linux":
    from gpumon.allowance import allowance_sources
    from gpumon.process import process_source, tree

RETRY_SECONDS = 1.0


def gather(config: dict[str, Any]) -> tuple[list[Source], list[dict[str, Any]], dict[str, Any]]:
    """Every source, the devices' descriptions, and what became of NVML."""
    sources: list[Source] = []
    devices: list[dict[str, Any]] = []
    rest = host_sources()
    if sys.platform == "linux":
        rest += [process_source(config["root"]), *allowance_sources(config["root"])]
    try:
        nvml = open_nvml()
    except Unavailable as error:
        nvml = _without_gpus(config, error)
        devices.append(host_description())
        return rest, devices, nvml
    try:
        found = with_parents(find_devices(config["gpus"], config["visible"], config["order"]))
        family = Family(lambda: members(config))
        for device in found:
            devices.append(device.describe())
            sources += gpu_sources(device, config["interval"], family)
        if not found:
            nvml["reason"] = (
                f"CUDA_VISIBLE_DEVICES={config['visible']!r} hides every GPU"
                if config["visible"] is not None
                else "the NVIDIA driver sees no GPU"
            )
    except Unavailable as error:
        nvml = _without_gpus(config, error)
    devices.append(host_description())
    return sources + rest, devices, nvml


def members(config: dict[str, Any]) -> list[int]:
    """The watched program's processes, and those that its launcher started, where it has one."""
    if config["family"] is None:
        return psutil.pids()
    if sys.platform == "linux":
        return list(tree(config["family"]))
    return [config["parent"]]


def _without_gpus(config: dict[str, Any], error: Unavailable) -> dict[str, Any]:
    """What the trace says of NVML then; whoever asked for certain GPUs is refused instead."""
    if error.wrong_request:
        raise error
    if config["gpus"]:
        wanted = ", ".join(map(str, config["gpus"]))
        raise Unavailable(f"no GPU {wanted} on this machine: {error}", wrong_request=True)
    return {"available": False, "reason": str(error)}


def probe(sources: list[Source]) -> list[Source]:
    """Read each source once; one that can never work keeps its series, with the reason."""
    for source in sources:
        try:
            for series, value in strictly(source.series, source.read()):
                if isinstance(value, Unavailable):
                    series.reason = str(value)
        except Unavailable as error:
            for series in source.series:
                series.reason = str(error)
            source.dead = error.permanent or error.lost
        except Exception as error:
            for series in source.series:
                series.reason = f"{type(error).__name__}: {error}"
    return sources


class Sampler:
    """The loop's state: which source is due when, and what each last said."""

    def __init__(self, sources: list[Source], interval: float, writer: Writer) -> None:
        self.sources = sources
        self.writer = writer
        self.interval = interval
        self.offsets = []
        self.retry = [0.0] * len(sources)
        self.before = 0.0
        self.reading = 0.0
        count = 0
        for source in sources:
            self.offsets.append(count)
            count += len(source.series)
        self.values: list[float | None] = [None] * count
        # By the ticks between two readings, the sources whose turn it is at each of these ticks;
        # their number spreads the slow ones. 0 decimals are None, with which `round` gives an int.
        self.turns: dict[int, list[list[int]]] = {}
        self.places: list[list[tuple[int, Series, int | None]]] = []
        for index, source in enumerate(sources):
            step = max(1, round(source.every / interval))
            turns = self.turns.setdefault(step, [[] for _ in range(step)])
            turns[-index % step].append(index)
            numbered = enumerate(source.series, self.offsets[index])
            self.places.append([(place, each, each.digits or None) for place, each in numbered])

    def tick(self, number: int, now: float) -> None:
        """Read what is due and write one line."""
        began = time.monotonic()
        self._note_gap(now)
        for index in self._due(number):
            self._read(index, now)
        self.writer.sample(now, self.values)
        self.before, self.reading = now, time.monotonic() - began

    def _due(self, number: int) -> Iterable[int]:
        """The sources to read at a tick: all at the first, then each at its own rate."""
        if number == 0:
            return range(len(self.sources))
        return chain.from_iterable(turns[number % step] for step, turns in self.turns.items())

    def _read(self, index: int, now: float) -> None:
        """Read a source, if it may work; what it says is what the next samples have."""
        source = self.sources[index]
        if source.dead or now < self.retry[index]:
            return
        try:
            values = source.read()
        except Unavailable as error:
            self._failed(index, source, str(error), now, error.permanent, error.lost)
            return
        except Exception as error:
            # A fault in one reader must not end the others.
            self._failed(index, source, f"{type(error).__name__}: {error}", now, False, False)
            return
        if self.retry[index]:
            self.retry[index] = 0.0
            self.writer.event(now, "back", series=self._numbers(index, source))
        if source.noted:
            self._tell(source, now)
        for (place, series, digits), value in zip(self.places[index], values):
            if isinstance(value, Unavailable):
                self._missing(place, series, value, now)
            elif value is None or not -HUGE < value < HUGE:  # NaN too
                self.values[place] = None
            else:
                self.values[place] = round(value, digits)

    def _tell(self, source: Source, now: float) -> None:
        """Write the events that a reading came upon; what spoils a run is told at once."""
        for name, details in source.noted:
            self.writer.line({"t": round(now, 4), "event": name, **details})
            if name == "shared":
                say(f"warning: {shared(details)}")
        source.noted.clear()

    def _note_gap(self, now: float) -> None:
        """Say why there was no sample for long: nothing else knows."""
        if now - self.before > longest(self.interval):
            slow = self.reading > (now - self.before) / 2
            why = (
                f"reading the devices took {self.reading:.1f} s"
                if slow
                else "the sampler was stopped, or the machine too busy to run it"
            )
            self.writer.event(self.before + self.interval, "gap", reason=why)

    def _missing(self, place: int, series: Series, why: Unavailable, now: float) -> None:
        """One value of several is missing; the first time is an event."""
        self.values[place] = None
        if series.reason is None:
            series.reason = str(why)
            self.writer.event(now, "failed", series=[place], reason=series.reason)

    def _numbers(self, index: int, source: Source) -> list[int]:
        return [self.offsets[index] + place for place in range(len(source.series))]

    def _failed(
        self, index: int, source: Source, reason: str, now: float, permanent: bool, lost: bool
    ) -> None:
        numbers = self._numbers(index, source)
        for number in numbers:
            self.values[number] = None
        if not self.retry[index]:
            self.writer.event(now, "failed", series=numbers, reason=reason)
        self.retry[index] = now + max(RETRY_SECONDS, self.interval)
        if lost:
            self.writer.event(now, "device lost", device=source.device, reason=reason)
            for other_index, other in enumerate(self.sources):
                if other.device == source.device:
                    other.dead = True
                    for number in self._numbers(other_index, other):
                        self.values[number] = None
        source.dead = source.dead or permanent or lost


def header_of(
    config: dict[str, Any],
    sources: list[Source],
    devices: list[dict[str, Any]],
    nvml: dict[str, Any],
) -> dict[str, Any]:
    uname = os.uname()
    return {
        "gpumon": FORMAT,
        "version": config["version"],
        "host": uname.nodename,
        "system": f"{uname.sysname} {uname.release}",
        "boot": boot(),
        "rank": config["rank"],
        "program": config["program"],
        "sampler": os.getpid(),
        "clock": "monotonic, shared by all processes of the machine",
        "interval (s)": config["interval"],
        "nvml": nvml,
        "devices": devices,
        "series": [text for source in sources for text in source.describe()],
    }


def loop(sampler: Sampler, start: float, parent: int) -> str:
    """Sample until told to stop; returns why it ended."""
    number = 0
    stopping: list[str] = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append("terminated"))
    while True:
        sampler.tick(number, time.monotonic() - start)
        sampler.writer.ticks += 1
        # Missed ticks are skipped, never crowded together, and the grid stays where it was.
        late = time.monotonic() - start
        following = max(number + 1, int(late / sampler.interval) + 1)
        sampler.writer.missed += following - number - 1
        number = following
        wait = start + number * sampler.interval - time.monotonic()
        readable, _, _ = select.select([0], [], [], max(0.0, wait))
        if readable:
            told = os.read(0, 64)
            reason = "closed" if told else "parent gone"
        elif stopping:
            reason = stopping[0]
        elif os.getppid() != parent:
            # Forked children of the program may still hold the pipe, so its end is not enough.
            reason = "parent gone"
        else:
            continue
        sampler.tick(number, time.monotonic() - start)
        return reason


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    config = json.loads(arguments[0])
    try:
        sources, devices, nvml = gather(config)
    except Unavailable as error:
        say(f"error: {error}")
        return 2
    probe(sources)
    header = header_of(config, sources, devices, nvml)
    start = time.monotonic()
    header |= {"start (monotonic s)": start, "start (unix s)": time.time()}
    writer = Writer(samples_file(Path(config["path"])), config["file"], config["limit"])
    writer.line(header)
    gc.collect()
    gc.freeze()
    sampler = Sampler(sources, config["interval"], writer)
    say("ready")
    reason = loop(sampler, start, config["parent"])
    used = os.times()
    writer.event(
        time.monotonic() - start,
        "end",
        why=reason,
        **{
            "samples": writer.ticks,
            "missed": writer.missed,
            "sampler cpu (s)": round(used.user + used.system, 3),
            "sampler memory (MiB)": round(sampler_memory(), 1),
        },
    )
    writer.close()
    close_nvml()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
