"""What the sampling process does at each tick: reads what is due, and writes one line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
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
    """Where a source's value goes, and how it is rounded."""

    number: int
    series: Series
    digits: int | None


class _Poll(NamedTuple):
    """A source that is one call at every tick, and where what it fills goes.

    A tick is short if it goes through few objects: what they are kept in has left the processor's
    caches since the tick before.
    """

    source: int
    function: Callable[..., int]
    arguments: tuple[Any, ...]
    numbers: list[tuple[int, Any, float, float, int | None]]

    @classmethod
    def of(cls, index: int, poll: Poll, places: list[_Place]) -> _Poll:
        numbers = [
            (place.number, number.cell, number.start or 0, number.unit, place.digits)
            for place, number in strictly(places, poll.numbers)
        ]
        return cls(index, poll.function, poll.arguments, numbers)


class Sampler:
    """The loop's state: which source is due when, and what each last said."""

    def __init__(self, sources: list[Source], interval: float, writer: Writer) -> None:
        self.sources = sources
        self.writer = writer
        self.interval = interval
        self.retry = [0.0] * len(sources)
        self.before = 0.0
        self.reading = 0.0
        offsets = [0, *accumulate(len(source.series) for source in sources)]
        self.values: list[float | None] = [None] * offsets[-1]
        self._polls: list[_Poll] = []
        # By the ticks between two readings, the sources whose turn it is at each of these ticks.
        # Those of a kind come together, as the second costs less than the first, and kinds apart.
        self._turns: dict[int, list[list[int]]] = {1: [[]]}
        self._places: list[list[_Place]] = []
        kinds: dict[str, int] = {}
        for index, source in enumerate(sources):
            # With no decimals in place of 0, `round` gives an int.
            numbered = enumerate(source.series, offsets[index])
            places = [_Place(place, series, series.digits or None) for place, series in numbered]
            self._places.append(places)
            step = max(1, round(source.every / interval))
            if step == 1 and source.poll and source.poll.ready and not source.dead:
                self._polls.append(_Poll.of(index, source.poll, places))
                continue
            kind = kinds.setdefault(source.series[0].key.partition("/")[2], len(kinds))
            turns = self._turns.setdefault(step, [[] for _ in range(step)])
            turns[-kind % step].append(index)

    def tick(self, number: int, now: float) -> None:
        """Read what is due and write one line."""
        began = time.monotonic()
        self._note_gap(now)
        self._poll(now)
        for index in self._due(number):
            self._read(index, now)
        self.writer.sample(now, self.values)
        self.before, self.reading = now, time.monotonic() - began

    def _poll(self, now: float) -> None:
        """Make the calls of every tick; one that fails is from now on read as other sources are."""
        values = self.values
        failed: dict[int, int] = {}
        for index, function, arguments, numbers in self._polls:
            if code := function(*arguments):
                failed[index] = code
                continue
            for place, cell, start, unit, digits in numbers:
                value = (cell.value - start) / unit
                values[place] = round(value, digits) if -HUGE < value < HUGE else None
        if not failed:
            return
        for index, code in failed.items():
            self._failed(index, cast(Poll, self.sources[index].poll).failure(code), now)
        self._turns[1][0] += failed
        self._polls = [
            poll
            for poll in self._polls
            if poll.source not in failed and not self.sources[poll.source].dead
        ]

    def _due(self, number: int) -> Iterable[int]:
        """The other sources to read at a tick: all at the first, then each at its own rate."""
        turns = self._turns.items()
        if number == 0:
            return chain.from_iterable(chain.from_iterable(each for _, each in turns))
        return chain.from_iterable(each[number % step] for step, each in turns)

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
        for (place, series, digits), value in zip(self._places[index], values):
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

    def _numbers(self, index: int) -> list[int]:
        return [place.number for place in self._places[index]]

    def _failed(self, index: int, error: Unavailable, now: float) -> None:
        """Take away what a source said; it is read again in a while, where that may help."""
        source, reason = self.sources[index], str(error)
        for number in self._numbers(index):
            self.values[number] = None
        if not self.retry[index]:
            self.writer.event(now, "failed", series=self._numbers(index), reason=reason)
        self.retry[index] = now + max(RETRY_SECONDS, self.interval)
        if error.lost:
            self.writer.event(now, "device lost", device=source.device, reason=reason)
            for other_index, other in enumerate(self.sources):
                if other.device == source.device:
                    other.dead = True
                    for number in self._numbers(other_index):
                        self.values[number] = None
        source.dead = source.dead or error.permanent or error.lost
