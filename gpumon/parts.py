"""A long trace on disk: parts that are full are compressed, and the oldest dropped for a limit.

When ``PREFIX.jsonl`` has grown to ``PART`` bytes, its samples go into ``PREFIX.parts``, as
``000001.part``, and it begins anew: the header, which lists the parts, all events so far, and a
sample that names every series.

A part is a line of JSON and what its ``sizes`` list, one after the other: the times, then for each
series the samples at which it changed, and the values. They are whole numbers (ten thousandths of a
second, hundredths of a unit, of a series in their largest common unit): differences where they only
grow, else counted from the lowest. They are laid out byte by byte (all lowest bytes first, as many
as the largest needs), and each of these planes is compressed with codes of its own: noise costs its
own bits and little more.
"""

from __future__ import annotations

import json
import math
import re
import sys
import zlib
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, compress
from operator import ne
from pathlib import Path
from typing import Any

from gpumon.compat import pairwise, strictly
from gpumon.lines import HUGE, count, number

PART = 4 * 2**20
"""Bytes of text."""
SCALE, TICKS = 100, 10_000
NOTHING = -(2**62)
"""A value that is not available."""
AT_ONCE = 64
"""Samples whose changes are taken in together, which costs less than one by one."""
MOST_PARTS = 100_000
MOST_SAMPLES = 2_000_000
MOST_BYTES = 64 * 2**20
LEVEL = 5

Columns = tuple["array[float]", list[tuple["array[int]", "array[float]"]]]
"""Times, and for each series the samples at which it changed and what to."""


class Damaged(Exception):
    """A part that is not what a sampler writes."""


def parts_folder(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + ".parts")


def remove(prefix: Path) -> None:
    """Take away the parts and rows of an older trace; only what bears a part's name."""
    folder = parts_folder(prefix)
    if folder.is_dir() and not folder.is_symlink():
        for file in folder.iterdir():
            if _named(file.name):
                file.unlink()
        if not any(folder.iterdir()):
            folder.rmdir()
    prefix.with_name(prefix.name + ".tiers").unlink(missing_ok=True)


class Packer:
    """What will be a part, kept as numbers until the part is full."""

    def __init__(self, series: int) -> None:
        self.size = 0
        self._ticks = array("q")
        self._places = [array("q") for _ in range(series)]
        self._values = [array("q") for _ in range(series)]
        self._last: Sequence[object] = [NOTHING] * series
        self._waiting: list[Sequence[float | None]] = []

    def add(self, size: int, now: float, values: Sequence[float | None]) -> None:
        """Take a sample; size: the bytes that it had as text."""
        self._ticks.append(round(now * TICKS))
        self._waiting.append(values)
        self.size += size
        if len(self._waiting) == AT_ONCE:
            self._fold()

    def _fold(self) -> None:
        """Take in the changes of each series by itself: most of them have none."""
        if not self._waiting:
            return
        first = len(self._ticks) - len(self._waiting)
        for series, (before, column) in enumerate(strictly(self._last, zip(*self._waiting))):
            if column.count(before) == len(column):
                continue
            changed = list(map(ne, column, (before, *column)))
            self._places[series].extend(compress(range(first, first + len(column)), changed))
            self._values[series].extend(
                NOTHING if value is None else round(value * SCALE)
                for value in compress(column, changed)
            )
        self._last = self._waiting[-1]
        self._waiting = []

    def write(self, folder: Path, place: int) -> dict[str, Any]:
        """The part as a file; gives its entry for the header. OSError where it cannot be."""
        self._fold()
        blobs, sizes = [_pack(_steps(self._ticks))], []
        for places, values in strictly(self._places, self._values):
            grows = (
                bool(values) and values[0] != NOTHING and all(a <= b for a, b in pairwise(values))
            )
            # In their common unit, such as whole percents, which keeps a byte or two out of it.
            known = [value for value in values if value != NOTHING]
            unit, low = math.gcd(*known) or 1, min(known, default=0)
            small = array("q", (0 if v == NOTHING else (v - low) // unit + 1 for v in values))
            pair = _pack(_steps(places)), _pack(_steps(small) if grows else small)
            sizes.append([len(places), len(pair[0]), len(pair[1]), int(grows), unit, low])
            blobs += pair
        head = {"gpumon part": 1, "samples": len(self._ticks), "times": len(blobs[0])}
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
            "from": self._ticks[0] / TICKS,
            "to": self._ticks[-1] / TICKS,
            "samples": len(self._ticks),
            "bytes": len(data),
        }


def read_part(prefix: Path, part: dict[str, Any], series: int) -> Columns:
    """The samples of a part; Damaged where it is gone or is not what it should be."""
    try:
        with (parts_folder(prefix) / part["file"]).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        line, _, rest = data.partition(b"\n")
        head = json.loads(line)
        samples, sizes, length = head["samples"], head["sizes"], head["times"]
        counts = [samples, length, *(each for entry in sizes for each in entry[:5])]
        whole = all(map(count, counts)) and all(number(entry[5]) for entry in sizes)
        if len(data) > MOST_BYTES or not whole or len(sizes) != series or samples > MOST_SAMPLES:
            raise Damaged
        times = array("d", (t / TICKS for t in accumulate(_unpack(rest[:length], samples))))
        if any(a > b for a, b in pairwise(times)) or (times and not 0 <= times[0] <= HUGE):
            raise Damaged
        found = []
        for changes, first, second, grows, unit, low in sizes:
            places = array("q", accumulate(_unpack(rest[length : length + first], changes)))
            length += first
            values = _unpack(rest[length : length + second], changes)
            length += second
            sound = all(a < b for a, b in pairwise(places))
            if not sound or (places and not 0 <= places[0] <= places[-1] < samples):
                raise Damaged
            found.append((places, _unscaled(accumulate(values) if grows else values, unit, low)))
    except (OSError, LookupError, ValueError, TypeError, OverflowError, zlib.error) as error:
        raise Damaged from error
    return times, found


def fault(header: dict[str, Any]) -> str | None:
    """What is wrong with a header's parts."""
    parts = header.get("parts", [])
    if not isinstance(parts, list) or len(parts) > MOST_PARTS:
        return "'parts' is no list"
    for place, part in enumerate(parts):
        sound = isinstance(part, dict) and _named(part.get("file"))
        if not sound or not (number(part.get("from"), 0) and count(part.get("samples"))):
            return f"parts[{place}] is no part"
    return None


def _named(name: object) -> bool:
    return isinstance(name, str) and re.fullmatch(r"[0-9]{6}\.part", name) is not None


def _steps(numbers: array[int]) -> array[int]:
    """The first, and each one's difference to that before."""
    return array("q", [*numbers[:1], *(b - a for a, b in pairwise(numbers))])


def _pack(numbers: array[int]) -> bytes:
    """Numbers that are not negative, compressed."""
    data = (numbers if sys.byteorder == "little" else _swapped(numbers)).tobytes()
    width = (max(numbers, default=0).bit_length() + 7) // 8
    packer = zlib.compressobj(LEVEL, zlib.DEFLATED, zlib.MAX_WBITS, 9, zlib.Z_FILTERED)
    planes = [packer.compress(data[byte::8]) + packer.flush(zlib.Z_BLOCK) for byte in range(width)]
    return b"".join(planes) + packer.flush()


def _unpack(data: bytes, amount: int) -> array[int]:
    if amount > MOST_SAMPLES:
        raise Damaged
    unpacker = zlib.decompressobj()
    planes = unpacker.decompress(data, 8 * amount + 1)
    # Only at its end has it been held against its checksum, and is known to be whole.
    if not unpacker.eof or len(planes) % max(1, amount) or len(planes) > 8 * amount:
        raise Damaged
    mixed = bytearray(8 * amount)
    for byte in range(len(planes) // max(1, amount)):
        mixed[byte::8] = planes[byte * amount : (byte + 1) * amount]
    numbers = array("q", bytes(mixed))
    return numbers if sys.byteorder == "little" else _swapped(numbers)


def _swapped(numbers: array[int]) -> array[int]:
    numbers = numbers[:]
    numbers.byteswap()
    return numbers


def _unscaled(values: Iterable[int], unit: int, low: int) -> array[float]:
    nan = float("nan")
    found = array("d", (((v - 1) * unit + low) / SCALE if v else nan for v in values))
    if any(abs(value) > HUGE for value in found):
        raise Damaged
    return found
