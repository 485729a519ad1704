"""This module follows a trace that is being written, and reads only its new lines."""

from __future__ import annotations

import contextlib
import math
import os
from array import array
from collections import deque
from pathlib import Path
from typing import IO, Any

from gpumon.downsampling import bit_mask_series
from gpumon.errors import MonitorError
from gpumon.recording import Recording, Table, recording
from gpumon.sampling_gaps import gap_threshold
from gpumon.trace_files import marks_file, read_header, samples_file
from gpumon.trace_format import Damaged, is_event, is_mark, is_sample, parse


class Tail:
    """The whole new lines of a growing file since the last look.

    Where another file has taken its place, as when a long trace begins a new part, the rest of the
    old one comes first. One that was emptied is read from its beginning, however much has been
    written since: the first line, which holds when a recording began, is no longer the same.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] | None = None
        self._rest = b""
        self._first = b""

    def lines(self) -> list[Any]:
        if self._emptied():
            self.close()
        values = self._new()
        if not self._same():
            self.close()
            values += self._new()
        return values

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._rest, self._first = None, b"", b""

    def _emptied(self) -> bool:
        """Whether the file that is read begins otherwise than it did, or has become shorter."""
        if self._file is None:
            return False
        try:
            read = self._file.tell()
            self._file.seek(0)
            first = self._file.read(len(self._first))
            self._file.seek(read)
            return first != self._first or os.fstat(self._file.fileno()).st_size < read
        except OSError:
            return False

    def _same(self) -> bool:
        """Whether the file that is read is still that of the name, or none has taken its place."""
        try:
            there = self.path.stat()
        except OSError:
            return True
        if self._file is None:
            return True
        return os.path.samestat(os.fstat(self._file.fileno()), there)

    def _new(self) -> list[Any]:
        try:
            self._file = self._file or self.path.open("rb")
            data = self._file.read()
        except OSError:
            return []
        if not self._first.endswith(b"\n"):
            self._first += data[: data.find(b"\n") + 1 or len(data)]
        *whole, self._rest = (self._rest + data).split(b"\n")
        values = []
        for line in whole:
            with contextlib.suppress(Damaged):
                values.append(parse(line))
        return values

    def __del__(self) -> None:
        self.close()


class Follower:
    """The latest values of a trace, a history of each, and the phases that are open."""

    def __init__(self, prefix: Path, history: int = 600) -> None:
        self._prefix, self._longest = prefix, history
        self._begin()

    def _begin(self) -> None:
        """Take in what is there, from its beginning."""
        self.header = read_header(self._prefix)
        self.now: dict[str, float] = {}
        self.time = 0.0
        self.ended: str | None = None
        self.lost: set[str] = set()
        self._keys = [series["key"] for series in self.header["series"]]
        self.history: dict[str, deque[float]] = {
            key: deque(maxlen=self._longest) for key in self._keys
        }
        self._samples = Tail(samples_file(self._prefix))
        self._marks = Tail(marks_file(self._prefix))
        self._open: dict[tuple[Any, Any], str] = {}
        self._last = -1.0
        self.poll()

    @property
    def phase(self) -> str:
        """The phase opened last that is still open; empty between phases."""
        return next(reversed(self._open.values()), "")

    def poll(self) -> bool:
        """Take in what is new; True if there was any."""
        new = False
        for line in self._samples.lines():
            if isinstance(line, dict) and "gpumon" in line and self._is_another():
                for tail in (self._samples, self._marks):
                    tail.close()
                self._begin()
                return True
            if is_sample(line, len(self._keys)):
                if line[0] > self._last:  # a file that begins anew has some of the last again
                    self._last = line[0]
                    self._sample(line)
                    new = True
            elif is_event(line, len(self._keys)):
                self._event(line)
        for line in filter(is_mark, self._marks.lines()):
            if line[0] == "B":
                self._open[line[2], line[3]] = line[4]
            else:
                self._open.pop((line[2], line[3]), None)
        return new

    def _is_another(self) -> bool:
        """Whether a later recording has taken the trace's place."""
        began = "start (unix s)"
        with contextlib.suppress(MonitorError):
            return bool(read_header(self._prefix)[began] != self.header[began])
        return False

    def seconds_silent(self, moment: float) -> float:
        """Seconds without a sample until ``moment`` (unix s), where that is a gap; else 0."""
        since = moment - self.header["start (unix s)"] - self.time
        return since if self.ended is None and since > gap_threshold(self._interval) else 0.0

    @property
    def _interval(self) -> float:
        return float(self.header["interval (s)"])

    def _event(self, event: dict[str, Any]) -> None:
        if event["event"] == "end":
            self.ended = event["why"]
        elif event["event"] == "device lost":
            self.lost.add(event["device"])

    def _sample(self, line: list[Any]) -> None:
        missed = 0
        if line[0] - self.time > gap_threshold(self._interval):
            missed = round((line[0] - self.time) / self._interval) - 1
        self.time = line[0]
        for place in range(1, len(line), 2):
            value = line[place + 1]
            self.now[self._keys[line[place]]] = math.nan if value is None else value
        for key, values in self.history.items():
            values.extend([math.nan] * min(missed, values.maxlen or 0))
            values.append(self.now.get(key, math.nan))


class GrowingTrace:
    """A trace in memory that takes in only what is new; what becomes long becomes means.

    most: rows that it may have. Beyond them each two become their mean.
    """

    def __init__(self, prefix: Path, most: int = 20_000) -> None:
        self.prefix = prefix
        self.header = read_header(prefix)
        self.step = float(self.header["interval (s)"])
        self._table = Table(len(self.header["series"]))
        self._masks = set(bit_mask_series(self.header))
        self._most = most
        self._events: list[dict[str, Any]] = []
        self._marked: list[list[Any]] = []
        self._last = -1.0
        self._samples = Tail(samples_file(prefix))
        self._marks = Tail(marks_file(prefix))

    def recording(self) -> Recording:
        """What there is of it by now."""
        new: list[Any] = []
        for line in self._samples.lines():
            if isinstance(line, dict) and "gpumon" in line:
                self._events.clear()  # those of the parts before come again
            elif is_sample(line, len(self._table.columns)):
                if line[0] > self._last:  # so do some samples
                    self._last = line[0]
                    new.append(line)
            else:
                new.append(line)
        self._table.take(new, self._events)
        self._marked += filter(is_mark, self._marks.lines())
        times, columns = self._table.filled()
        while len(times) > self._most:
            times, columns = self._halve()
        events, marks = list(self._events), list(self._marked)
        return recording(self.prefix, self.header, times, columns, events, marks, self.step, 0)

    def _halve(self) -> tuple[array[float], list[array[float]]]:
        """Each two rows as one, with their means; of bit masks the first."""
        table = self._table
        self.step *= 2
        for number, column in enumerate(table.columns):
            pairs = column[::2]
            for place, second in enumerate(column[1::2] if number not in self._masks else ()):
                first = pairs[place]
                mean = (first + second) / 2
                pairs[place] = mean if mean == mean else second if first != first else first
            table.columns[number] = pairs
        table.times = table.times[::2]
        return table.times, table.columns
