"""The writer appends changed values to a trace, and tolerates a full disk."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

from gpumon.errors import MonitorError, printable
from gpumon.long_traces import (
    PART,
    Steps,
    bit_mask_series,
    columns_of,
    encode_row,
    parts_folder,
    rows_of,
    tiers_file,
    write_part,
)
from gpumon.trace_files import create, prefix_of

MOST_OWED = 100
MOST_EVENTS = 1000
"""That each new part begins with."""


def send_message(message: str) -> None:
    """One line to the program through standard output; a closed pipe is no reason to fail."""
    with contextlib.suppress(OSError):
        os.write(1, (printable(message) + "\n").encode())


class Writer:
    """Writes whole lines, one ``write`` each, unbuffered.

    A sample that could not be written is lost, and a gap: once the disk takes lines again, an
    event says since when and why, and the next sample names every series. Any other line is kept
    and written then. A file that is full becomes a part (:mod:`gpumon.long_traces`);
    limit: bytes that parts may have, the oldest of which are dropped; 0: there are no parts and no
    rows.
    """

    def __init__(self, path: Path, limit: int | None = None) -> None:
        self.ticks = 0
        self.missed = 0
        self._path = path
        self._prefix = prefix_of(path)
        self._file = create(path)
        self._last: list[float | None] = []
        self._owed: list[dict[str, Any]] = []
        self._trouble: str | None = None
        self._torn = False
        self._gap = False
        self._limit = limit
        self._header: dict[str, Any] = {}
        self._events: list[dict[str, Any]] = []
        self._waiting: list[list[Any]] = []
        self._making: Steps[None] | None = None
        self._size = 0
        self._full = PART
        self._rows = 0

    def sample(
        self, now: float, values: list[float | None], touched: Iterable[int] | None = None
    ) -> None:
        """Append the values that differ from the last sample's; all of them the first time.

        touched: the places of all that may differ, if they are known. To look at
        others is to wait for the memory.
        """
        self._pay()
        line: list[Any] = [round(now, 4)]
        last = self._last
        if len(last) != len(values):
            self._last = values.copy()
            line += chain.from_iterable(enumerate(values))
        else:
            for place in range(len(values)) if touched is None else touched:
                value = values[place]
                if value != last[place]:
                    last[place] = value
                    line.append(place)
                    line.append(value)
        # As JSON, but faster: there are but numbers and None in it.
        text = repr(line).replace(" ", "").replace("None", "null")
        if not self._owed and self._write(text):
            self._gap = False
            self._keep(line, len(text))
        else:
            self._last = []
            self._lost(line[0])

    def event(self, now: float, name: str, **details: Any) -> None:
        self.line({"t": round(now, 4), "event": name, **details})

    def line(self, value: dict[str, Any]) -> None:
        """Append a header or an event, after those that are still owed."""
        if "gpumon" in value:
            self._header = value
        elif len(self._events) < MOST_EVENTS:
            self._events.append(value)
        self._owed.append(value)
        del self._owed[MOST_OWED:]
        self._pay()

    def close(self) -> None:
        """One last try at what is owed."""
        self._pay()
        os.close(self._file)

    def _keep(self, line: list[Any], size: int) -> None:
        """Keep a sample that was written for the next part; where that is full, a step to make it.

        To make it at once takes longer than the time between samples.
        """
        self._waiting.append(line)
        self._size += size
        if self._making is None and self._size >= self._full and self._header:
            self._making = self._part()
        if self._making is not None:
            try:
                next(self._making)
            except StopIteration:
                self._making = None
            except (OSError, MonitorError) as error:
                # This part continues, until there is room for the next.
                self._making = None
                self._full = self._size + PART
                self._complain(getattr(error, "strerror", None) or str(error))

    def _part(self) -> Steps[None]:
        """Compress the samples that there are into a part, and begin the file anew without them."""
        if self._limit == 0:
            self._begin(self._header | {"parts": [], "dropped": True}, [])
            return
        lines = self._waiting.copy()
        columns = yield from columns_of(lines, len(self._header["series"]))
        rows = b""
        interval, bits = self._header["interval (s)"], bit_mask_series(self._header)
        for row in rows_of(columns, interval, math.inf, bits):
            rows += encode_row(row)
            yield
        listed = self._header.get("parts", [])
        place = 1 + int(listed[-1]["file"][:6]) if listed else 1
        part = yield from write_part(parts_folder(self._prefix), place, columns)
        with tiers_file(self._prefix).open("ab") as file:
            file.truncate(self._rows)  # there may be those of a part that could not be begun
            file.write(rows)
        rest = self._waiting[len(lines) :]
        if rest:
            values = {n: column[-1] for n, (_, column) in enumerate(columns[1])}
            values.update(zip(rest[0][1::2], rest[0][2::2]))
            known = ((n, None if value != value else value) for n, value in values.items())
            rest[0] = [rest[0][0], *chain.from_iterable(known)]
        kept, over = [*listed, part], []
        while self._limit is not None and sum(p["bytes"] for p in kept) > self._limit:
            over.append(kept.pop(0))
        dropped = {"dropped": True} if over else {}
        self._begin(self._header | {"parts": kept} | dropped, rest)
        self._rows = tiers_file(self._prefix).stat().st_size
        # Only now, when no header names them any more; a file that stays is not read.
        for each in over:
            with contextlib.suppress(OSError):
                (parts_folder(self._prefix) / each["file"]).unlink()

    def _begin(self, header: dict[str, Any], samples: list[list[Any]]) -> None:
        """Begin the file anew with these samples, unseen until it is whole."""
        new = self._path.with_name(f".{self._path.name}.new")
        file = create(new)
        lines = (header, *self._events, *samples)
        data = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        try:
            whole = data.encode("utf-8", "backslashreplace")
            if os.write(file, whole) < len(whole):
                raise OSError("the disk took only part of it")
            new.replace(self._path)
        except OSError:
            os.close(file)
            new.unlink(missing_ok=True)
            raise
        os.close(self._file)
        self._file, self._header = file, header
        self._waiting, self._size, self._full = samples, 0, PART
        if not samples:
            self._last = []  # the first sample names every series

    def _lost(self, now: float) -> None:
        """The first sample of a gap leaves an event to be written as soon as one can be."""
        if not self._gap:
            self._gap = True
            self.event(now, "gap", reason=f"the trace could not be written: {self._trouble}")

    def _pay(self) -> None:
        while self._owed and self._write(json.dumps(self._owed[0], ensure_ascii=False)):
            del self._owed[0]

    def _write(self, text: str) -> bool:
        # A newline first if the last line was torn, so that it spoils itself alone.
        # Half a character pair, which is no UTF-8, as the escape that JSON has for it.
        data = (("\n" if self._torn else "") + text + "\n").encode("utf-8", "backslashreplace")
        try:
            written = os.write(self._file, data)
            why = "the disk took only part of a line"
        except OSError as error:
            written, why = 0, error.strerror or str(error)
        if written < len(data):
            self._torn = self._torn or written > 0
            self._complain(why)
            return False
        self._torn = False
        return True

    def _complain(self, why: str) -> None:
        if self._trouble is None:
            send_message(
                f"warning: gpumon cannot write {self._path}: {why}; "
                "the program continues, the chart will have a gap"
            )
        self._trouble = why
