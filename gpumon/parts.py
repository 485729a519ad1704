"""A long trace on disk: parts that are full are compressed, and the oldest dropped for a limit.

When ``PREFIX.jsonl`` has grown to ``PART`` bytes, its samples go into ``PREFIX.parts``, as
``000001.jsonl.gz``, and it begins anew: the header, which lists the parts, all events so far, and a
sample that names every series. Lines are compressed one by one as they are written, because a whole
part at once would hold up the samples.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpumon.errors import MonitorError
from gpumon.lines import LONGEST_LINE, Damaged, count, number, parse

PART = 8 * 2**20
"""Bytes of text."""
MOST_IN_A_PART = 8 * PART
"""Bytes that a part may unfold to: one that comes from elsewhere may hold anything."""
MOST_PARTS = 100_000
LEVEL = 6


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
    """Compresses a part's lines as they come, in memory: a fifth of ``PART`` or so."""

    def __init__(self) -> None:
        self._pack = zlib.compressobj(LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
        self._done: list[bytes] = []
        self.samples = 0
        self.size = 0
        self.first = self.last = 0.0

    def add(self, data: bytes, now: float) -> None:
        self._done.append(self._pack.compress(data))
        if not self.samples:
            self.first = now
        self.samples, self.last, self.size = self.samples + 1, now, self.size + len(data)

    def write(self, folder: Path, place: int) -> dict[str, Any]:
        """The part as a file; gives its entry for the header. OSError where it cannot be."""
        # Of a copy, because where it cannot be written the part goes on.
        data = b"".join(self._done) + self._pack.copy().flush()
        folder.mkdir(exist_ok=True)
        name = f"{place:06d}.jsonl.gz"
        file = folder / name
        try:
            file.write_bytes(data)
        except OSError:
            file.unlink(missing_ok=True)
            raise
        return {
            "file": name,
            "from": round(self.first, 4),
            "to": round(self.last, 4),
            "samples": self.samples,
            "bytes": len(data),
        }


def _named(name: object) -> bool:
    return isinstance(name, str) and re.fullmatch(r"[0-9]{6}\.jsonl\.gz", name) is not None


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


def samples_of(prefix: Path, part: dict[str, Any]) -> Iterator[Any]:
    """The lines of a part, None for a damaged one; a part that is gone has one damaged line."""
    file = parts_folder(prefix) / part["file"]
    left = MOST_IN_A_PART
    try:
        with gzip.open(file, "rb") as lines:
            while line := lines.readline(LONGEST_LINE):
                left -= len(line)
                if left < 0:
                    raise MonitorError(f"{file} is no part of a trace: it unfolds without end")
                try:
                    yield parse(line)
                except Damaged:
                    yield None
    except (OSError, EOFError, zlib.error):
        yield None
