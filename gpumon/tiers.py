"""Tiers: what a long trace is read as, a row every twenty seconds with each series' mean and range.

A week of eight GPUs at 10 Hz has a thousand million values. The sampler keeps the rows while it
records; a reader takes them in place of samples that would not fit into memory, or that were
dropped. Where samples are missing, a row holds what is known, and there is none in a longer gap.

``PREFIX.tiers`` has each on a line of its own, compressed (zlib, base64), so that one that is torn
fails its checksum and spoils no other. A row is little-endian binary: its start and the mean of
each series as doubles, then the lowest and the highest of each as single precision; NaN where
nothing is known. Of bit masks it has the one that held longest in place of a mean.
"""

from __future__ import annotations

import binascii
import math
import sys
import zlib
from array import array
from collections.abc import Sequence
from operator import mul
from pathlib import Path
from typing import Any

from gpumon.compat import pairwise, strictly
from gpumon.gaps import longest

ROW = 20.0
"""Seconds."""
NAN = float("nan")
LEVEL = 6
AT_ONCE = 64
"""Samples that are folded together, which costs less than one by one."""
BLOCK = 2**22
"""Bytes of rows that are taken in at once."""


def masks(header: dict[str, Any]) -> list[int]:
    """The series whose values are bits, of which there is no mean."""
    return [n for n, series in enumerate(header["series"]) if series["key"].endswith("(bits)")]


class Tier:
    """Folds samples into rows.

    count: number of series. interval: seconds between samples. bits: the series that are masks.
    """

    def __init__(self, count: int, interval: float, bits: Sequence[int] = ()) -> None:
        self.start: float | None = None
        self._interval = interval
        self._times: list[float] = []
        self._waiting: list[Sequence[float | None]] = []
        self._amount = [0.0] * count
        self._seconds = [0.0] * count
        self._low = [math.inf] * count
        self._high = [-math.inf] * count
        self._held: dict[int, dict[float, float]] = {place: {} for place in bits}

    def sample(self, now: float, values: Sequence[float | None]) -> bytes | None:
        """Take a sample, which is not changed later; gives the row before once a new one begins."""
        row = None
        full = self.start is not None and now >= self.start + ROW
        if self._times:
            if now - self._times[-1] > longest(self._interval):
                # A value stands for one interval where the next is missing; then nothing is known.
                self._fold(self._times[-1] + self._interval)
            elif full or len(self._times) == AT_ONCE:
                self._fold(now)
        if full:
            row = self._row()
        if full or self.start is None:
            self.start = now
        self._times.append(now)
        self._waiting.append(values)
        return row

    def close(self, end: float) -> bytes | None:
        """The row that is open; None where there is none."""
        if self.start is None:
            return None
        if self._times:
            self._fold(min(end, self._times[-1] + self._interval))
        return self._row()

    def _fold(self, until: float) -> None:
        """Take in the samples that wait, series by series; the last of them held until then."""
        held = [max(0.0, b - a) for a, b in pairwise([*self._times, until])]
        total = sum(held)
        for place, column in enumerate(zip(*self._waiting)):
            first = column[0]
            if first is not None and column.count(first) == len(column):
                self._hold(place, [first], [total])
            elif None in column:
                known = [(v, s) for v, s in zip(column, held) if v is not None]
                self._hold(place, [v for v, _ in known], [s for _, s in known])
            else:
                self._hold(place, column, held)
        self._times, self._waiting = [], []

    def _hold(self, place: int, values: Sequence[float], seconds: Sequence[float]) -> None:
        if not values:
            return
        self._amount[place] += sum(map(mul, values, seconds))
        self._seconds[place] += sum(seconds)
        self._low[place] = min(self._low[place], *values)
        self._high[place] = max(self._high[place], *values)
        if place in self._held:
            held = self._held[place]
            for value, long in strictly(values, seconds):
                if long > 0:
                    held[value] = held.get(value, 0.0) + long

    def _row(self) -> bytes:
        means = array("d", [NAN if self.start is None else self.start])
        ranges: list[float] = []
        for place, (amount, seconds) in enumerate(strictly(self._amount, self._seconds)):
            held = self._held.get(place)
            if held:
                means.append(max(held, key=lambda value: held[value]))
                held.clear()
            else:
                means.append(amount / seconds if seconds > 0 else NAN)
        for edges in (self._low, self._high):
            ranges += [edge if math.isfinite(edge) else NAN for edge in edges]
        count = len(self._amount)
        self._amount, self._seconds = [0.0] * count, [0.0] * count
        self._low, self._high = [math.inf] * count, [-math.inf] * count
        singles = array("f", ranges)
        if sys.byteorder == "big":
            means.byteswap()
            singles.byteswap()
        return means.tobytes() + singles.tobytes()


class Rows:
    """Rows as columns: ``times``, and for each series ``means``, ``lows`` and ``highs``."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.times = array("d")
        self.means = [array("d") for _ in range(count)]
        self.lows = [array("f") for _ in range(count)]
        self.highs = [array("f") for _ in range(count)]

    def add(self, data: bytes) -> int:
        """Take whole rows; a row out of order, which no sampler writes, is left out and counted."""
        size = 8 + 16 * self.count
        wrong = 0
        flat, singles = array("d"), array("f")
        last = self.times[-1] if self.times else -math.inf
        for place in range(0, len(data) - size + 1, size):
            row = array("d", data[place : place + 8 * (self.count + 1)])
            if sys.byteorder == "big":
                row.byteswap()
            if not (last < row[0] < 1e15) or any(map(math.isinf, row)):
                wrong += 1
                continue
            last = row[0]
            flat += row
            singles.frombytes(data[place + 8 * (self.count + 1) : place + size])
        if sys.byteorder == "big":
            singles.byteswap()
        self.times += flat[:: self.count + 1]
        for place in range(self.count):
            self.means[place] += flat[place + 1 :: self.count + 1]
            self.lows[place] += singles[place :: 2 * self.count]
            self.highs[place] += singles[place + self.count :: 2 * self.count]
        return wrong


def tiers_file(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + ".tiers")


def line_of(row: bytes) -> bytes:
    """A row as the file has it; its line begins anew after one that was torn."""
    return b"\n" + binascii.b2a_base64(zlib.compress(row, LEVEL), newline=False)


def row_in(line: bytes, size: int) -> bytes | None:
    """The row of a line, which has that many bytes; None where it is damaged."""
    unpacker = zlib.decompressobj()
    try:
        row = unpacker.decompress(binascii.a2b_base64(line), size + 1)
    except (ValueError, zlib.error):
        return None
    return row if unpacker.eof and len(row) == size else None


def read_rows(prefix: Path, count: int) -> tuple[Rows, int]:
    """The rows of a trace, and how many were damaged; none where there is no file."""
    rows, wrong = Rows(count), 0
    path, size = tiers_file(prefix), 8 + 16 * count
    if not path.is_file():
        return rows, 0
    waiting: list[bytes] = []
    with path.open("rb") as file:
        last = True
        while line := file.readline(2 * size + 1024):
            wrong += not last  # the last line of all may be being written
            row = row_in(line, size) if line.strip() else b""
            last = row is not None
            if row:
                waiting.append(row)
            if len(waiting) * size > BLOCK:
                wrong += rows.add(b"".join(waiting))
                waiting.clear()
    return rows, wrong + rows.add(b"".join(waiting))
