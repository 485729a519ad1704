"""What the sampling process does at each tick: reads what is due, and writes one line."""

from __future__ import annotations

import time
from collections.abc import Callable
from ctypes import c_int, c_uint
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import Any, NamedTuple, cast

from gpumon.compat import strictly
from gpumon.gaps import longest
from gpumon.lines import HUGE
from gpumon.meaning import shared
from gpumon.series import Poll, Series, Source, Unavailable
from gpumon.writer import Writer, say

RETRY_SECONDS = 1.0


class _Place(NamedTuple):
    """Where a source's value goes, and how it is rounded: to a whole number, or of 1 / scale.

    ``round`` with a number of digits goes by way of a text, and takes several times as long.
    """

    number: int
    series: Series
    scale: int | None


class _Poll(NamedTuple):
    """A source that is one call, and where what it fills goes.

    A tick is short if it goes through few objects: what they are kept in has left the processor's
    caches since the tick before.
    """

    source: int
    function: Callable[..., int]
    arguments: tuple[Any, ...]
    whole: list[tuple[int, Any]]
    others: list[tuple[int, Any, float, float, int | None]]

    @classmethod
    def of(cls, index: int, poll: Poll, places: list[_Place]) -> _Poll:
        """Sorted into numbers that are taken as they are, and others."""
        whole: list[tuple[int, Any]] = []
        others: list[tuple[int, Any, float, float, int | None]] = []
        for place, number in strictly(places, poll.numbers):
            small = isinstance(number.cell, (c_uint, c_int))
            if small and number.unit == 1 and not number.start and not place.scale:
                whole.append((place.number, number.cell))
            else:
                unit = number.unit / (place.scale or 1)
                start = number.start or 0
                others.append((place.number, number.cell, start, unit, place.scale))
        return cls(index, poll.function, poll.arguments, whole, others)


@dataclass
class _Turn:
    """What is due at the same ticks."""

    polls: list[_Poll] = field(default_factory=list)
    others: list[int] = field(default_factory=list)


class Sampler:
    """The loop's state: which source is due when, and what each last said."""

    def __init__(self, sources: list[Source], interval: float, writer: Writer) -> None:
        self.sources = sources
        self.writer = writer
        self.interval = interval
        self.retry = [0.0] * len(sources)
        self.before = 0.0
        self.reading = self.writing = 0.0
        offsets = [0, *accumulate(len(source.series) for source in sources)]
        self.values: list[float | None] = [None] * offsets[-1]
        # By the ticks between two readings, what has its turn at each of these ticks. Sources of a
        # kind come together, as the second costs less than the first, and kinds apart.
        self._turns: dict[int, list[_Turn]] = {}
        self._places: list[list[_Place]] = []
        kinds: dict[str, int] = {}
        for index, source in enumerate(sources):
            places = [
                _Place(place, series, 10**series.digits if series.digits else None)
                for place, series in enumerate(source.series, offsets[index])
            ]
            self._places.append(places)
            step = max(1, round(source.every / interval))
            of_gpu = source.device.startswith("gpu")
            kind = source.series[0].key.partition("/")[2] if of_gpu else "host"
            number = kinds.setdefault(kind, len(kinds))
            turn = self._turns.setdefault(step, [_Turn() for _ in range(step)])[-number % step]
            if source.poll and source.poll.ready and not source.dead:
                turn.polls.append(_Poll.of(index, source.poll, places))
            else:
                turn.others.append(index)

    def tick(self, number: int, now: float) -> None:
        """Read what is due and write one line; all is due at the first."""
        began = time.monotonic()
        self._note_gap(now)
        for step, turns in self._turns.items():
            for turn in turns if number == 0 else (turns[number % step],):
                if turn.polls:
                    self._poll(turn, now)
                for index in turn.others:
                    self._read(index, now)
        self.before, self.reading = now, time.monotonic() - began
        self.writer.sample(now, self.values)
        self.writing = time.monotonic() - began - self.reading

    def _poll(self, turn: _Turn, now: float) -> None:
        """Make a turn's calls; one that fails is from now on read as other sources are."""
        values = self.values
        failed: dict[int, int] = {}
        for index, function, arguments, whole, others in turn.polls:
            if code := function(*arguments):
                failed[index] = code
                continue
            for place, cell in whole:
                values[place] = cell.value
            for place, cell, start, unit, scale in others:
                value = (cell.value - start) / unit
                if not -HUGE < value < HUGE:  # NaN too
                    values[place] = None
                else:
                    values[place] = round(value) / scale if scale else round(value)
        if not failed:
            return
        for index, code in failed.items():
            self._failed(index, cast(Poll, self.sources[index].poll).failure(code), now)
        turn.others += failed
        turn.polls = [poll for poll in turn.polls if poll.source not in failed]

    def _read(self, index: int, now: float) -> None:
        """Read a source, if it may work; what it says is what the next samples have."""
        source = self.sources[index]
        if source.dead or now < self.retry[index]:
            return
        try:
            values = source.read()
        except Unavailable as error:
            self._failed(index, error, now)
            return
        except Exception as error:
            # A fault in one reader must not end the others.
            self._failed(index, Unavailable(f"{type(error).__name__}: {error}"), now)
            return
        if self.retry[index]:
            self.retry[index] = 0.0
            self.writer.event(now, "back", series=self._numbers(index))
        if source.noted:
            self._tell(source, now)
        for (place, series, scale), value in zip(self._places[index], values):
            if isinstance(value, Unavailable):
                self._missing(place, series, value, now)
            elif value is None or not -HUGE < value < HUGE:  # NaN too
                self.values[place] = None
            else:
                self.values[place] = round(value * scale) / scale if scale else round(value)

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
            half = (now - self.before) / 2
            why = "the sampler was stopped, or the machine too busy to run it"
            if self.reading > half:
                why = f"reading the devices took {self.reading:.1f} s"
            elif self.writing > half:
                why = f"writing the sample before took {self.writing:.1f} s"
            self.writer.event(self.before + self.interval, "gap", reason=why)

    def _missing(self, place: int, series: Series, why: Unavailable, now: float) -> None:
        """One value of several is missing; the first time is an event."""
        self.values[place] = None
        if series.reason is None:
            series.reason = str(why)
            self.writer.event(now, "failed", series=[place], reason=series.reason)

    def _numbers(self, index: int) -> list[int]:
        return [place.number for place in self._places[index]]

    def _failed(self, index: int, error: Unavailable, now: float) -> None:
        """Take away what a source said, or all that a lost device's sources did.

        A source is read again in a while, where that may help.
        """
        source, reason = self.sources[index], str(error)
        if source.dead:
            return  # its device was lost by another one's call just now
        struck = [index]
        if error.lost:
            others = enumerate(self.sources)
            struck = [n for n, other in others if other.device == source.device and not other.dead]
        numbers = [number for each in struck for number in self._numbers(each)]
        for number in numbers:
            self.values[number] = None
        if error.lost or not self.retry[index]:
            self.writer.event(now, "failed", series=numbers, reason=reason)
        self.retry[index] = now + max(RETRY_SECONDS, self.interval)
        if error.lost:
            self.writer.event(now, "device lost", device=source.device, reason=reason)
        if error.lost or error.permanent:
            for each in struck:
                self.sources[each].dead = True
            for turn in chain.from_iterable(self._turns.values()):
                turn.polls = [poll for poll in turn.polls if not self.sources[poll.source].dead]
