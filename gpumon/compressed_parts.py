"""Long traces are stored in compressed parts; a size limit drops the oldest parts.

When ``PREFIX.jsonl`` has grown to ``PART`` bytes, its samples go into ``PREFIX.parts``, as
``000001.part``, and it begins anew: the header, which lists the parts, all events so far, and a
sample that names every series.

A part is a line of JSON and what its ``sizes`` list, one after the other: the times, then for each
series the samples at which it changed, and the values. They are whole numbers (ten thousandths of a
second, hundredths of a unit, of a series in their largest common unit): differences where they only
grow, else counted from the lowest. They are laid out byte by byte (all lowest bytes first, as many
as the largest needs), and each of these planes is compressed with separate codes: noise costs its
own bits and little more.
"""

from __future__ import annotations

import json
import math
import re
import sys
import zlib
from array import array
from collections.abc import Generator, Iterable, Sequence
from itertools import accumulate, repeat
from operator import floordiv, le, mul, sub
from pathlib import Path
from typing import Any, TypeVar

from gpumon.compat import pairwise
from gpumon.trace_format import HUGE, is_count, is_number

PART = 2**20
"""Bytes of text."""
LINES, SERIES = 100, 16
"""That are packed in a step."""
SCALE, TICKS = 100, 10_000
NOTHING = -(2**62)
"""A value that is not available."""
MOST_PARTS = 100_000
MOST_SAMPLES = 2_000_000
MOST_BYTES = 64 * 2**20
LEVEL = 5
NAN = float("nan")

T = TypeVar("T")
Steps = Generator[None, None, T]
Columns = tuple["array[float]", list[tuple["array[int]", "array[float]"]]]
"""Times, and for each series the samples at which it changed and what to."""


class Damaged(Exception):
    """A part that is not what a sampler writes."""


def parts_folder(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + ".parts")


def remove_parts(prefix: Path) -> None:
    """Take away the parts and rows of an older trace; only what bears a part's name."""
    folder = parts_folder(prefix)
    if folder.is_dir() and not folder.is_symlink():
        for file in folder.iterdir():
            if _named(file.name):
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
    """The samples of a part; Damaged where it is gone or is not what it should be."""
    try:
        with (parts_folder(prefix) / part["file"]).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        line, _, rest = data.partition(b"\n")
        head = json.loads(line)
        samples, sizes, length = head["samples"], head["sizes"], head["times"]
        counts = [samples, length, *(each for entry in sizes for each in entry[:5])]
        whole = all(map(is_count, counts)) and all(is_number(entry[5]) for entry in sizes)
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


def header_error(header: dict[str, Any]) -> str | None:
    """What is wrong with a header's parts."""
    parts = header.get("parts", [])
    if not isinstance(parts, list) or len(parts) > MOST_PARTS:
        return "'parts' is no list"
    for place, part in enumerate(parts):
        sound = isinstance(part, dict) and _named(part.get("file"))
        if not sound or not (is_number(part.get("from"), 0) and is_count(part.get("samples"))):
            return f"parts[{place}] is no part"
    return None


def _named(name: object) -> bool:
    return isinstance(name, str) and re.fullmatch(r"[0-9]{6}\.part", name) is not None


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
    # Only at its end has it been compared with its checksum, and is known to be whole.
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
    found = array("d", (((v - 1) * unit + low) / SCALE if v else NAN for v in values))
    if any(abs(value) > HUGE for value in found):
        raise Damaged
    return found
