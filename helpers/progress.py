"""What the runner shows on the terminal: one line that moves, or plain lines in a log."""

import sys
import threading
import time
from collections.abc import Sequence
from typing import TextIO


class Line:
    """``with Line() as line: line.show("5. Data")``: the text with the time since the start.

    On a terminal one line is rewritten every second; in a log each new text is a line of its own.
    """

    def __init__(self, stream: TextIO | None = None, indent: str = "      ") -> None:
        self._stream = stream or sys.stdout
        self._moves = self._stream.isatty()
        self._indent = indent
        self._text = self._detail = ""
        self._began = time.monotonic()
        self._over = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> "Line":
        if self._moves:
            self._ticker.start()
        return self

    def show(self, text: str, detail: str = "") -> None:
        """Now at ``text``; ``detail`` is only shown where the line moves."""
        before, self._text = self._text, text
        self._detail = detail
        if self._moves:
            self._draw()
        elif text != before:
            print(
                f"{self._indent}{clock(time.monotonic() - self._began)}  {text}", file=self._stream
            )
            self._stream.flush()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._moves:
            self._ticker.join()
            self._stream.write("\r\x1b[2K")
            self._stream.flush()

    def _tick(self) -> None:
        while not self._over.wait(1):
            self._draw()

    def _draw(self) -> None:
        if not self._text:
            return
        text = f"{self._indent}{clock(time.monotonic() - self._began)}  {self._text}"
        if self._detail:
            text += f"  ({self._detail})"
        self._stream.write(f"\r\x1b[2K{text[:119]}")
        self._stream.flush()


def clock(seconds: float) -> str:
    """65.2 as ``1:05``, 3665 as ``1:01:05``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A plain table: the first column to the left, the others as wide as they need."""
    lines = [list(header), *[list(row) for row in rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
