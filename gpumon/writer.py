"""The writer appends changed values to a trace, tolerates a full disk, and bounds the size."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from gpumon.errors import printable
from gpumon.trace_files import create, new_file
from gpumon.trace_format import MOST_VALUES

MOST_OWED = 100
LINES = 200
"""Lines that are read in a step."""


def send_message(message: str) -> None:
    """One line to the program through standard output; a closed pipe is no reason to fail."""
    with contextlib.suppress(OSError):
        os.write(1, (printable(message) + "\n").encode())


class Writer:
    """Writes whole lines, one ``write`` each, unbuffered.

    A sample that could not be written is lost, and a gap: once the disk takes lines again, an
    event says since when and why, and the next sample names every series. Any other line is kept
    and written then. Where a trace has more than ``MOST_VALUES``, every second sample is dropped
    and ``interval``, the seconds between two samples, doubles.
    """

    def __init__(self, path: Path) -> None:
        self.ticks = 0
        self.missed = 0
        self._path = path
        self._file = create(path)
        self._last: list[float | None] = []
        self._owed: list[dict[str, Any]] = []
        self._trouble: str | None = None
        self._torn = False
        self._gap = False
        self._header: dict[str, Any] = {}
        self._samples = 0
        self._thinning: Iterator[None] | None = None
        self.interval = 0.0

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
            self._count()
        else:
            self._last = []
            self._lost(line[0])

    def event(self, now: float, name: str, **details: Any) -> None:
        self.line({"t": round(now, 4), "event": name, **details})

    def line(self, value: dict[str, Any]) -> None:
        """Append a header or an event, after those that are still owed."""
        if "gpumon" in value:
            self._header, self.interval = value, value["interval (s)"]
        self._owed.append(value)
        del self._owed[MOST_OWED:]
        self._pay()

    def close(self) -> None:
        """One last try at what is owed."""
        self._pay()
        os.close(self._file)

    def _count(self) -> None:
        """Count a sample that was written; where there are too many, take a step to thin them out.

        To do it at once takes longer than the time between samples.
        """
        self._samples += 1
        if self._thinning is None and self._samples * len(self._last) > MOST_VALUES:
            self._thinning = self._thin()
        if self._thinning is not None:
            try:
                next(self._thinning)
            except StopIteration:
                self._thinning = None
            except OSError as error:
                self._thinning, self._samples = None, 0  # until there are as many again
                self._complain(error.strerror or str(error))

    def _thin(self) -> Iterator[None]:
        """Write the file again without every second sample, and put it in the place of this one."""
        new = new_file(self._path)
        header = self._header | {
            "interval (s)": 2 * self._header["interval (s)"],
            "thinned": 2 * self._header.get("thinned", 1),
        }
        file = create(new)
        changed: dict[int, float | None] = {}
        samples = 0
        try:
            with os.fdopen(file, "wb", closefd=False) as out, self._path.open("rb") as lines:
                out.write(json.dumps(header, ensure_ascii=False).encode() + b"\n")
                lines.readline()
                for number, line in enumerate(lines):  # what is written meanwhile, too
                    if number % LINES == 0:
                        yield
                    if line.startswith(b"["):
                        with contextlib.suppress(ValueError):  # a torn line
                            moment, *pairs = json.loads(line)
                            changed.update(zip(pairs[::2], pairs[1::2]))
                            if samples % 2 == 0:
                                kept = [moment, *chain.from_iterable(changed.items())]
                                line = json.dumps(kept, separators=(",", ":")).encode() + b"\n"
                                out.write(line)
                                changed.clear()
                            samples += 1
                    else:
                        out.write(line)
            new.replace(self._path)
        except OSError:
            os.close(file)
            new.unlink(missing_ok=True)
            raise
        os.close(self._file)
        self._file, self._header, self._torn = file, header, False
        self._last, self._samples = [], samples // 2  # the next sample names every series
        self.interval = header["interval (s)"]

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
