"""A series is one measured quantity with its unit; a source reads one or several of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

from gpumon.errors import Unavailable
from gpumon.nvml import as_unavailable
from gpumon.trace_files import HUGE, Writer, gap_threshold, send_message
from gpumon.words import sharing_warning

RETRY_SECONDS = 1.0


@dataclass
class Series:
    """One column of the trace: key such as ``gpu0/power (W)`` and how it is read."""

    key: str
    api: str
    digits: int = 0
    reason: str | None = None


Read = Callable[[], Sequence["float | Unavailable | None"]]
"""Gives values, in their series' order."""


@dataclass
class Source:
    """What gives the values of some series of a device, every so many seconds; 0 for each sample.

    A value may be None (nothing to say yet) or an Unavailable (this one failed, the others not).
    pending_events: what a reading came upon, until the sampler writes it.
    """

    device: str
    series: list[Series]
    read: Read
    every: float = 0.0
    dead: bool = False
    pending_events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def describe(self) -> list[dict[str, Any]]:
        return [
            {"key": s.key, "api": s.api, "every (s)": self.every, "reason": s.reason}
            for s in self.series
        ]

    def first_read(self) -> None:
        """Read once; what can never work keeps its series, with the reason."""
        if self.dead:
            return
        values: Sequence[float | Exception | None]
        try:
            values = self.read()
        except Exception as error:
            why = as_unavailable(error)
            self.dead = why.permanent or why.lost
            values = [why] * len(self.series)
        for series, value in zip(self.series, values, strict=True):
            if isinstance(value, Unavailable):
                series.reason = str(value)


def per_second(unit: float, least: float = 0.0) -> Callable[[Sequence[int]], list[float | None]]:
    """What gives how much counters have grown in a second since they were last given, in units.

    None for the first time, for a counter that has fallen, and after no more than ``least``
    seconds.
    """
    before: list[tuple[float, Sequence[int]]] = []

    def rates(counts: Sequence[int]) -> list[float | None]:
        now, found = time.monotonic(), list[float | None]([None] * len(counts))
        if before and now - before[0][0] > least:
            then, old = before[0]
            found = [
                (new - was) / unit / (now - then) if new >= was else None
                for new, was in zip(counts, old, strict=True)
            ]
        before[:] = [(now, counts)]
        return found

    return rates


class Scheduler:
    """The loop's state: which source is due when, and what each last said."""

    def __init__(self, sources: list[Source], interval: float, writer: Writer) -> None:
        self.sources = sources
        self.writer = writer
        self.retry = [0.0] * len(sources)
        self.before = self.reading = self.writing = 0.0
        offsets = [0, *accumulate(len(source.series) for source in sources)]
        self.values: list[float | None] = [None] * offsets[-1]
        self.changed: set[int] = set()
        # Where the values of each source are in a sample.
        self.places = [range(*both) for both in pairwise(offsets)]
        self.plan(interval)

    def plan(self, interval: float) -> None:
        """Decide at which ticks each source is read, with so many seconds between two ticks.

        Sources of one kind have their turn together, as the second costs less than the first.
        """
        self.interval = interval
        # By the ticks between two readings, the sources that are read at each of these ticks.
        self.turns: dict[int, list[list[int]]] = {}
        kinds: dict[str, int] = {}
        for index, source in enumerate(self.sources):
            of_gpu = source.device.startswith("gpu")
            kind = source.series[0].key.partition("/")[2] if of_gpu else "host"
            step = max(1, round(source.every / interval))
            turns = self.turns.setdefault(step, [[] for _ in range(step)])
            turns[-kinds.setdefault(kind, len(kinds)) % step].append(index)

    def tick(self, number: int, now: float) -> None:
        """Read what is due and write one line; all is due at the first."""
        began = time.monotonic()
        self._note_gap(now)
        for step, turns in self.turns.items():
            for turn in turns if number == 0 else (turns[number % step],):
                for index in turn:
                    if not self.sources[index].dead and now >= self.retry[index]:
                        self._read(index, now)
        self.before, self.reading = now, time.monotonic() - began
        self.writer.sample(now, self.values, self.changed)
        self.changed.clear()
        self.writing = time.monotonic() - began - self.reading

    def _read(self, index: int, now: float) -> None:
        """Read a source; what it says is what the next samples have."""
        source = self.sources[index]
        try:
            values = source.read()
        except Exception as error:
            self._failed(index, as_unavailable(error), now)
            return
        if self.retry[index]:
            self.retry[index] = 0.0
            self.writer.event(now, "back", series=[*self.places[index]])
        while source.pending_events:
            name, details = source.pending_events.pop(0)
            self.writer.event(now, name, **details)
            if name == "shared":
                send_message(f"warning: {sharing_warning(details)}")
        for place, series, value in zip(self.places[index], source.series, values, strict=True):
            if isinstance(value, Unavailable):
                if series.reason is None:  # the first time is an event
                    series.reason = str(value)
                    self.writer.event(now, "failed", series=[place], reason=series.reason)
                value = None
            elif value is not None:
                # NaN is not a value either.
                value = round(value, series.digits or None) if -HUGE < value < HUGE else None
            if value != self.values[place]:
                self.values[place] = value
                self.changed.add(place)

    def _note_gap(self, now: float) -> None:
        """Say why there was no sample for long: nothing else knows."""
        if now - self.before > gap_threshold(self.interval):
            half = (now - self.before) / 2
            why = "the sampler was stopped, or the machine too busy to run it"
            if self.reading > half:
                why = f"reading the devices took {self.reading:.1f} s"
            elif self.writing > half:
                why = f"writing the sample before took {self.writing:.1f} s"
            self.writer.event(self.before + self.interval, "gap", reason=why)

    def _failed(self, index: int, error: Unavailable, now: float) -> None:
        """Take away what a source said, or all that a lost device's sources did.

        A source is read again in a while, where that may help.
        """
        source, reason = self.sources[index], str(error)
        struck = [index]
        if error.lost:
            others = enumerate(self.sources)
            struck = [n for n, other in others if other.device == source.device and not other.dead]
        places = [place for each in struck for place in self.places[each]]
        for place in places:
            self.values[place] = None
        self.changed.update(places)
        if error.lost or not self.retry[index]:
            self.writer.event(now, "failed", series=places, reason=reason)
        self.retry[index] = now + max(RETRY_SECONDS, self.interval)
        if error.lost:
            self.writer.event(now, "device lost", device=source.device, reason=reason)
        if error.lost or error.permanent:
            for each in struck:
                self.sources[each].dead = True
