"""The scheduler decides at each tick which sources are read, and writes one sample."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from ctypes import c_int, c_uint
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import Any, NamedTuple

from gpumon.series import (
    MEMORY,
    Number,
    Poll,
    Read,
    Series,
    Source,
    Unavailable,
    offset_of,
    unpacker,
)
from gpumon.stats import gap_threshold
from gpumon.trace_format import HUGE
from gpumon.words import sharing_warning
from gpumon.writer import Writer, send_message

RETRY_SECONDS = 1.0


class _Place(NamedTuple):
    """Where a source's value goes, and how it is rounded: to a whole number, or of 1 / scale.

    ``round`` with a number of digits goes by way of a text, and takes several times as long.
    """

    number: int
    series: Series
    scale: int | None


class _Calls(NamedTuple):
    """The calls of one turn, and what becomes of what they fill.

    polls, calls: each with the number of its source. codes, take: what takes out of memory the
    codes of single numbers, and the numbers. Of each number where it goes and how it is
    converted: rows side by side, as an object for each number would have to come from memory again.
    """

    polls: list[tuple[int, Poll]]
    calls: list[tuple[int, Callable[..., int], tuple[Any, ...]]]
    codes: Callable[[bytearray], tuple[int, ...]]
    take: Callable[[bytearray], tuple[Any, ...]]
    places: tuple[int, ...]
    starts: tuple[float, ...]
    units: tuple[float | None, ...]
    scales: tuple[int | None, ...]

    @classmethod
    def of(cls, polls: list[tuple[int, Poll]], places: list[list[_Place]]) -> _Calls:
        """places: of every source."""
        found = sorted(
            (pair for index, poll in polls for pair in zip(poll.numbers, places[index])),
            key=lambda pair: offset_of(pair[0].storage),
        )
        return cls(
            polls,
            [(index, *call) for index, poll in polls for call in poll.calls],
            unpacker([number.code for number, _ in found if number.code is not None]),
            unpacker([number.storage for number, _ in found]),
            tuple(place.number for _, place in found),
            tuple(number.start or 0 for number, _ in found),
            tuple(_unit(*pair) for pair in found),
            tuple(place.scale for _, place in found),
        )


def _unit(number: Number, place: _Place) -> float | None:
    """By what a number is divided; None where it is taken as it is."""
    small = type(number.storage) in (c_uint, c_int)
    whole = small and number.unit == 1 and not number.start and not place.scale
    return None if whole else number.unit / (place.scale or 1)


@dataclass
class _Turn:
    """What is due at the same ticks: sources that are but calls, and others.

    calls: those of this reading and of the next, as two may differ.
    """

    calls: list[_Calls] = field(default_factory=list)
    others: list[int] = field(default_factory=list)


class Scheduler:
    """The loop's state: which source is due when, and what each last said."""

    def __init__(self, sources: list[Source], interval: float, writer: Writer) -> None:
        self.sources = sources
        self.writer = writer
        self.retry = [0.0] * len(sources)
        self.before = 0.0
        self.reading = self.writing = 0.0
        self.values: list[float | None] = [None] * sum(len(source.series) for source in sources)
        self.touched: list[int] = []
        self.plan(interval)

    def plan(self, interval: float) -> None:
        """Decide at which ticks each source is read, with so many seconds between two ticks."""
        self.interval = interval
        sources = self.sources
        offsets = [0, *accumulate(len(source.series) for source in sources)]
        # By the ticks between two readings, what has its turn at each of these ticks. Sources of
        # one kind share a turn, as the second costs less than the first; kinds have separate turns.
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
            turn.others.append(index)
        for turn in chain.from_iterable(self._turns.values()):
            polls = [
                (index, poll)
                for index in turn.others
                if (poll := sources[index].poll) and poll.ready and not sources[index].dead
            ]
            following = [(index, poll.alternate or poll) for index, poll in polls]
            turn.calls = [_Calls.of(each, self._places) for each in (polls, following)]
            turn.others = [index for index in turn.others if index not in dict(polls)]

    def tick(self, number: int, now: float) -> None:
        """Read what is due and write one line; all is due at the first."""
        began = time.monotonic()
        self._note_gap(now)
        for step, turns in self._turns.items():
            for turn in turns if number == 0 else (turns[number % step],):
                # First, as what fails in a call becomes another source, whose turn has been.
                for index in turn.others:
                    self._read(index, now)
                if turn.calls[0].calls:
                    self._poll(turn, now)
        self.before, self.reading = now, time.monotonic() - began
        self.writer.sample(now, self.values, self.touched)
        self.touched.clear()
        self.writing = time.monotonic() - began - self.reading

    def _poll(self, turn: _Turn, now: float) -> None:
        """Make a turn's calls, and convert what they filled."""
        failed: dict[int, int] = {}
        polls, calls, codes, take, places, starts, units, scales = turn.calls[0]
        turn.calls.reverse()
        for index, function, arguments in calls:
            if code := function(*arguments):
                failed.setdefault(index, code)  # what fails after it, fails because of it
        values = self.values
        for raw, place, start, unit, scale in zip(take(MEMORY), places, starts, units, scales):
            if unit is None:
                values[place] = raw
                continue
            value = (raw - start) / unit
            if not -HUGE < value < HUGE:  # NaN too
                values[place] = None
            else:
                values[place] = round(value) / scale if scale else round(value)
        self.touched += places
        if failed or any(codes(MEMORY)):
            self._amiss(turn, polls, failed, now)

    def _amiss(
        self, turn: _Turn, polls: list[tuple[int, Poll]], failed: dict[int, int], now: float
    ) -> None:
        """Have sources read as others are, whose calls (by these codes) or numbers failed."""
        for index, poll in polls:
            if index in failed:
                self.sources[index].poll = poll  # the same once more
                self._failed(index, poll.failure(failed[index]), now)
            elif any(number.code is not None and number.code.value for number in poll.numbers):
                self.sources[index].poll = poll.alternate or poll
                self._read(index, now, poll.filled)
            else:
                continue
            turn.others.append(index)
        self._without(turn, set(turn.others))

    def _without(self, turn: _Turn, these: Collection[int]) -> None:
        turn.calls = [
            _Calls.of([pair for pair in calls.polls if pair[0] not in these], self._places)
            for calls in turn.calls
        ]

    def _read(self, index: int, now: float, read: Read | None = None) -> None:
        """Read a source, if it may work; what it says is what the next samples have.

        read: in place of its own.
        """
        source = self.sources[index]
        if source.dead or now < self.retry[index]:
            return
        try:
            values = (read or source.read)()
        except Unavailable as error:
            self._failed(index, error, now)
            return
        except Exception as error:
            # An error in one reader must not end the others.
            self._failed(index, Unavailable(f"{type(error).__name__}: {error}"), now)
            return
        if self.retry[index]:
            self.retry[index] = 0.0
            self.writer.event(now, "back", series=self._numbers(index))
        if source.pending_events:
            self._tell(source, now)
        self.touched += self._numbers(index)
        for (place, series, scale), value in zip(self._places[index], values):
            if isinstance(value, Unavailable):
                self._missing(place, series, value, now)
            elif value is None or not -HUGE < value < HUGE:  # NaN too
                self.values[place] = None
            else:
                self.values[place] = round(value * scale) / scale if scale else round(value)

    def _tell(self, source: Source, now: float) -> None:
        """Write the events of a reading; a process of another program is also a warning."""
        for name, details in source.pending_events:
            self.writer.line({"t": round(now, 4), "event": name, **details})
            if name == "shared":
                send_message(f"warning: {sharing_warning(details)}")
        source.pending_events.clear()

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
        self.touched += numbers
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
                self._without(turn, struck)
