"""The scheduler decides at each tick which sources are read, and writes one sample."""

from __future__ import annotations

import time
from itertools import accumulate, pairwise

from gpumon.series import Source, Unavailable
from gpumon.trace_format import HUGE, gap_threshold
from gpumon.words import sharing_warning
from gpumon.writer import Writer, send_message

RETRY_SECONDS = 1.0


class Scheduler:
    """The loop's state: which source is due when, and what each last said."""

    def __init__(self, sources: list[Source], interval: float, writer: Writer) -> None:
        self.sources = sources
        self.writer = writer
        self.retry = [0.0] * len(sources)
        self.before = 0.0
        self.reading = self.writing = 0.0
        offsets = [0, *accumulate(len(source.series) for source in sources)]
        self.values: list[float | None] = [None] * offsets[-1]
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
                    self._read(index, now)
        self.before, self.reading = now, time.monotonic() - began
        self.writer.sample(now, self.values)
        self.writing = time.monotonic() - began - self.reading

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
            # An error in one reader must not end the others.
            self._failed(index, Unavailable(f"{type(error).__name__}: {error}"), now)
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
                self.values[place] = None
                if series.reason is None:  # the first time is an event
                    series.reason = str(value)
                    self.writer.event(now, "failed", series=[place], reason=series.reason)
            elif value is None or not -HUGE < value < HUGE:  # NaN too
                self.values[place] = None
            else:
                self.values[place] = round(value, series.digits) if series.digits else round(value)

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
        if error.lost or not self.retry[index]:
            self.writer.event(now, "failed", series=places, reason=reason)
        self.retry[index] = now + max(RETRY_SECONDS, self.interval)
        if error.lost:
            self.writer.event(now, "device lost", device=source.device, reason=reason)
        if error.lost or error.permanent:
            for each in struck:
                self.sources[each].dead = True
