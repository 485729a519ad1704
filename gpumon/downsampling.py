"""Long traces are read as rows of 20 s, which hold each series' mean and range.

A week of eight GPUs at 10 Hz has a thousand million values. The sampler makes the rows of each part
(:mod:`gpumon.compressed_parts`); a reader takes them in place of samples that would not fit into
memory, or that were dropped. Where samples are missing, a row holds what is known, and there is
no row in a longer gap. The last row of a part may be shorter.

``PREFIX.tiers`` has each on a separate line, compressed (zlib, base64), so that one that is torn
fails its checksum and spoils no other. A row is little-endian binary: its start and the mean of
each series as doubles, then the minimum and maximum of each as single precision; NaN where
nothing is known. Of bit masks it has the one that held longest in place of a mean.
"""

from __future__ import annotations

import binascii
import math
import sys
import zlib
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate
from operator import mul
from pathlib import Path
from typing import Any

from gpumon.compat import pairwise, zip_strict
from gpumon.sampling_gaps import gap_threshold

ROW_SECONDS = 20.0
"""Seconds."""
NAN = float("nan")
LEVEL = 6
FINE = 1024
"""Parts of a unit that a mean has: digits beyond these would be noise that takes space."""
BLOCK = 2**22
"""Bytes of rows that are taken in at once."""


def bit_mask_series(header: dict[str, Any]) -> list[int]:
    """The series whose values are bits, of which there is no mean."""
    return [n for n, series in enumerate(header["series"]) if series["key"].endswith("(bits)")]


def rows_of(
    columns: tuple[Sequence[float], Sequence[tuple[Sequence[int], Sequence[float]]]],
    interval: float,
    end: float,
    bits: Collection[int] = (),
) -> Iterator[bytes]:
    """Folds samples into rows.

    columns: the times, and for each series the samples at which it changed, the first among them,
    and what to. interval: seconds between samples. end: when the recording ended; a value stands
    for one interval where the next is missing. bits: the series that are masks.
    """
    times, series = columns
    if not times:
        return
    held = [b - a if b - a <= gap_threshold(interval) else interval for a, b in pairwise(times)]
    held.append(max(0.0, min(end - times[-1], interval)))
    until = [0.0, *accumulate(held)]
    first = 0
    while first < len(times):
        last = bisect_left(times, times[first] + ROW_SECONDS, first + 1)
        means, lows, highs = array("d", [times[first]]), array("f"), array("f")
        for number, (places, values) in enumerate(series):
            a, b = bisect_left(places, first), bisect_left(places, last)
            if b - a == last - first:
                seen, seconds = values[a:b], held[first:last]
            else:
                a -= a == b or places[a] > first  # what it was before holds until it changes
                edges = [first, *places[a + 1 : b], last]
                seen, seconds = values[a:b], [until[j] - until[i] for i, j in pairwise(edges)]
            mean, low, high = _figures(seen, seconds, number in bits)
            means.append(mean if mean != mean else round(mean * FINE) / FINE)
            lows.append(low)
            highs.append(high)
        singles = lows + highs
        if sys.byteorder == "big":
            means.byteswap()
            singles.byteswap()
        yield means.tobytes() + singles.tobytes()
        first = last


def _figures(
    values: Sequence[float], seconds: Sequence[float], bits: bool
) -> tuple[float, float, float]:
    """Mean, or the value that was held longest of bits, and the range; NaN of nothing."""
    amount, total = sum(map(mul, values, seconds)), sum(seconds)
    if amount != amount:  # something is missing
        known = [(v, s) for v, s in zip_strict(values, seconds) if v == v]
        if not known:
            return NAN, NAN, NAN
        return _figures([v for v, _ in known], [s for _, s in known], bits)
    low, high = min(values), max(values)
    if bits and low < high:
        longest_held: dict[float, float] = defaultdict(float)
        for value, long in zip_strict(values, seconds):
            longest_held[value] += long
        return max(longest_held, key=lambda value: longest_held[value]), low, high
    return (amount / total if total > 0 else values[-1]), low, high


class Rows:
    """Rows as columns: ``times``, and for each series ``means``, ``lows`` and ``highs``."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.times = array("d")
        self.means = [array("d") for _ in range(count)]
        self.lows = [array("f") for _ in range(count)]
        self.highs = [array("f") for _ in range(count)]

    def cut(self, moment: float) -> None:
        """Leave out the rows from a moment on."""
        place = bisect_left(self.times, moment)
        for column in (self.times, *self.means, *self.lows, *self.highs):
            del column[place:]

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


def encode_row(row: bytes) -> bytes:
    """A row as the file has it; its line begins anew after one that was torn."""
    return b"\n" + binascii.b2a_base64(zlib.compress(row, LEVEL), newline=False)


def decode_row(line: bytes, size: int) -> bytes | None:
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
            row = decode_row(line, size) if line.strip() else b""
            last = row is not None
            if row:
                waiting.append(row)
            if len(waiting) * size > BLOCK:
                wrong += rows.add(b"".join(waiting))
                waiting.clear()
    return rows, wrong + rows.add(b"".join(waiting))
