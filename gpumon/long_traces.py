"""Long traces are stored in compressed parts and as rows; a size limit drops the oldest parts.

When ``PREFIX.jsonl`` has grown to ``PART`` bytes, its samples go into ``PREFIX.parts``, as
``000001.part``, and it begins anew: the header, which lists the parts, all events so far, and a
sample that names every series.

A part is a line of JSON and what its ``sizes`` list, one after the other: the times, then for each
series the samples at which it changed, and the values. They are whole numbers (ten thousandths of a
second, hundredths of a unit, of a series in their largest common unit): differences where they only
grow, else counted from the lowest. They are laid out byte by byte (all lowest bytes first, as many
as the largest needs), and each of these planes is compressed with separate codes: noise costs its
own bits and little more.

A week of eight GPUs at 10 Hz has a thousand million values. So the sampler makes rows of 20 s of
each part, with each series' mean and range; a reader takes them in place of samples that would not
fit into memory, or that were dropped. Where samples are missing, a row holds what is known, and
there is no row in a longer gap. The last row of a part may be shorter.

``PREFIX.tiers`` has each row on a separate line, compressed (zlib, base64), so that one that is
torn fails its checksum and spoils no other. A row is little-endian binary: its start and the mean
of each series as doubles, then the minimum and maximum of each as single precision; NaN where
nothing is known. Of bit masks it has the one that held longest in place of a mean.
"""

from __future__ import annotations

import binascii
import json
import math
import sys
import zlib
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from itertools import accumulate, repeat
from operator import floordiv, le, mul, sub
from pathlib import Path
from typing import Any, TypeVar

from gpumon.stats import gap_threshold
from gpumon.trace_format import HUGE, is_count, is_number, is_part_name

if sys.byteorder == "big":
    raise ImportError("gpumon writes little-endian numbers, which this machine does not have")

PART = 2**20
"""Bytes of text."""
LINES, SERIES = 100, 16
"""That are packed in a step."""
SCALE, TICKS = 100, 10_000
NOTHING = -(2**62)
"""A value that is not available."""
MOST_SAMPLES = 2_000_000
MOST_BYTES = 64 * 2**20
PART_LEVEL = 5
T = TypeVar("T")
Steps = Generator[None, None, T]
Columns = tuple["array[float]", list[tuple["array[int]", "array[float]"]]]
"""Times, and for each series the samples at which it changed and what to."""
ROW_SECONDS = 20.0
"""Seconds."""
NAN = float("nan")
ROW_LEVEL = 6
FINE = 1024
"""Parts of a unit that a mean has: digits beyond these would be noise that takes space."""
BLOCK = 2**22
"""Bytes of rows that are taken in at once."""


class DamagedPart(Exception):
    """A part that is not what a sampler writes."""


def parts_folder(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + ".parts")


def remove_parts(prefix: Path) -> None:
    """Take away the parts and rows of an older trace; only what bears a part's name."""
    folder = parts_folder(prefix)
    if folder.is_dir() and not folder.is_symlink():
        for file in folder.iterdir():
            if is_part_name(file.name):
                file.unlink()
        if not any(folder.iterdir()):
            folder.rmdir()
    prefix.with_name(prefix.name + ".tiers").unlink(missing_ok=True)


def columns_of(lines: Sequence[list[Any]], series: int) -> Steps[Columns]:
    """Samples, as the lines that name what changed, as columns of so many series.

    In steps of a few milliseconds, so that a sampler can continue in between.
    """
    found: list[tuple[list[int], list[float | None]]] = [([], []) for _ in range(series)]
    for sample, line in enumerate(lines):
        if sample % LINES == 0:
            yield
        for place, value in zip(line[1::2], line[2::2]):
            samples, values = found[place]
            samples.append(sample)
            values.append(value)
    columns = []
    for done, (samples, values) in enumerate(found):
        if done % SERIES == 0:
            yield
        known = array("d", (NAN if value is None else value for value in values))
        columns.append((array("q", samples), known))
    return array("d", (line[0] for line in lines)), columns


def write_part(folder: Path, place: int, columns: Columns) -> Steps[dict[str, Any]]:
    """The part as a file, in steps too; gives its entry for the header.

    Raises OSError in the last of them, where the file cannot be written.
    """
    times, series = columns
    ticks = _scaled(times, TICKS)
    blobs, sizes = [_pack(_steps(ticks))], []
    for done, (places, values) in enumerate(series):
        if done % SERIES == 0:
            yield
        scaled = _scaled(values, SCALE)
        grows = bool(scaled) and scaled[0] != NOTHING and all(map(le, scaled, scaled[1:]))
        known = [v for v in scaled if v != NOTHING] if NOTHING in scaled else scaled
        # In their common unit, such as whole percents, which keeps a byte or two out of it.
        unit, low = math.gcd(*known) or 1, min(known, default=0)
        if known is scaled:
            small = map(floordiv, map(sub, scaled, repeat(low - unit)), repeat(unit))
            numbers = array("q", small)
        else:
            numbers = array("q", (0 if v == NOTHING else (v - low) // unit + 1 for v in scaled))
        pair = _pack(_steps(places)), _pack(_steps(numbers) if grows else numbers)
        sizes.append([len(places), len(pair[0]), len(pair[1]), int(grows), unit, low])
        blobs += pair
    head = {"gpumon part": 1, "samples": len(ticks), "times": len(blobs[0])}
    line = json.dumps(head | {"sizes": sizes}).encode() + b"\n"
    data = line + b"".join(blobs)
    folder.mkdir(exist_ok=True)
    file = folder / f"{place:06d}.part"
    try:
        file.write_bytes(data)
    except OSError:
        file.unlink(missing_ok=True)
        raise
    return {
        "file": file.name,
        "from": ticks[0] / TICKS,
        "to": ticks[-1] / TICKS,
        "samples": len(ticks),
        "bytes": len(data),
    }


def read_part(prefix: Path, part: dict[str, Any], series: int) -> Columns:
    """The samples of a part; DamagedPart where it is gone or is not what it should be."""
    try:
        with (parts_folder(prefix) / part["file"]).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        line, _, rest = data.partition(b"\n")
        head = json.loads(line)
        samples, sizes, length = head["samples"], head["sizes"], head["times"]
        counts = [samples, length, *(each for entry in sizes for each in entry[:5])]
        whole = all(map(is_count, counts)) and all(is_number(entry[5]) for entry in sizes)
        if len(data) > MOST_BYTES or not whole or len(sizes) != series or samples > MOST_SAMPLES:
            raise DamagedPart
        times = array("d", (t / TICKS for t in accumulate(_unpack(rest[:length], samples))))
        if any(a > b for a, b in zip(times, times[1:])) or (times and not 0 <= times[0] <= HUGE):
            raise DamagedPart
        found = []
        for changes, first, second, grows, unit, low in sizes:
            places = array("q", accumulate(_unpack(rest[length : length + first], changes)))
            length += first
            values = _unpack(rest[length : length + second], changes)
            length += second
            sound = all(a < b for a, b in zip(places, places[1:]))
            if not sound or (places and not 0 <= places[0] <= places[-1] < samples):
                raise DamagedPart
            found.append((places, _unscaled(accumulate(values) if grows else values, unit, low)))
    except (OSError, LookupError, ValueError, TypeError, OverflowError, zlib.error) as error:
        raise DamagedPart from error
    return times, found


def _scaled(values: array[float], scale: int) -> array[int]:
    """Whole numbers of 1 / scale; of NaN, ``NOTHING``."""
    if math.isnan(sum(values)):
        return array("q", (NOTHING if v != v else round(v * scale) for v in values))
    return array("q", map(round, map(mul, values, repeat(scale))))


def _steps(numbers: array[int]) -> array[int]:
    """The first, and each one's difference to that before."""
    return numbers[:1] + array("q", map(sub, numbers[1:], numbers))


def _pack(numbers: array[int]) -> bytes:
    """Numbers that are not negative, compressed."""
    data = numbers.tobytes()
    width = (max(numbers, default=0).bit_length() + 7) // 8
    packer = zlib.compressobj(PART_LEVEL, zlib.DEFLATED, zlib.MAX_WBITS, 9, zlib.Z_FILTERED)
    planes = [packer.compress(data[byte::8]) + packer.flush(zlib.Z_BLOCK) for byte in range(width)]
    return b"".join(planes) + packer.flush()


def _unpack(data: bytes, amount: int) -> array[int]:
    if amount > MOST_SAMPLES:
        raise DamagedPart
    unpacker = zlib.decompressobj()
    planes = unpacker.decompress(data, 8 * amount + 1)
    # Only at its end has it been compared with its checksum, and is known to be whole.
    if not unpacker.eof or len(planes) % max(1, amount) or len(planes) > 8 * amount:
        raise DamagedPart
    mixed = bytearray(8 * amount)
    for byte in range(len(planes) // max(1, amount)):
        mixed[byte::8] = planes[byte * amount : (byte + 1) * amount]
    return array("q", bytes(mixed))


def _unscaled(values: Iterable[int], unit: int, low: int) -> array[float]:
    found = array("d", (((v - 1) * unit + low) / SCALE if v else NAN for v in values))
    if any(abs(value) > HUGE for value in found):
        raise DamagedPart
    return found


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
    held = [
        b - a if b - a <= gap_threshold(interval) else interval for a, b in zip(times, times[1:])
    ]
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
                seen, seconds = values[a:b], [until[j] - until[i] for i, j in zip(edges, edges[1:])]
            mean, low, high = _figures(seen, seconds, number in bits)
            means.append(mean if mean != mean else round(mean * FINE) / FINE)
            lows.append(low)
            highs.append(high)
        singles = lows + highs
        yield means.tobytes() + singles.tobytes()
        first = last


def _figures(
    values: Sequence[float], seconds: Sequence[float], bits: bool
) -> tuple[float, float, float]:
    """Mean, or the value that was held longest of bits, and the range; NaN of nothing."""
    amount, total = sum(map(mul, values, seconds)), sum(seconds)
    if amount != amount:  # something is missing
        known = [(v, s) for v, s in zip(values, seconds) if v == v]
        if not known:
            return NAN, NAN, NAN
        return _figures([v for v, _ in known], [s for _, s in known], bits)
    low, high = min(values), max(values)
    if bits and low < high:
        longest_held: dict[float, float] = defaultdict(float)
        for value, long in zip(values, seconds):
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
            if not (last < row[0] < 1e15) or any(map(math.isinf, row)):
                wrong += 1
                continue
            last = row[0]
            flat += row
            singles.frombytes(data[place + 8 * (self.count + 1) : place + size])
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
    return b"\n" + binascii.b2a_base64(zlib.compress(row, ROW_LEVEL), newline=False)


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
