"""Print to the terminal: lines, tables, and a progress line that is rewritten every second."""

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TextIO

from data_prep.errors import printable
from helpers.errors import STDOUT, naming


def say(text: object = "", *, error: bool = False) -> None:
    """Print lines at once, as plain text; all output but the progress table uses this function.

    Raises:
        OSError: the stream cannot be written; it names standard output or standard error.
    """
    with naming("standard error" if error else STDOUT):
        lines = "\n".join(map(printable, str(text).split("\n")))
        print(lines, file=sys.stderr if error else sys.stdout, flush=True)


class EverySecond:
    """Draw once a second from a separate thread, between ``start()`` and ``stop()``."""

    def __init__(self, draw: Callable[[], object]) -> None:
        self._draw = draw
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.start = self._thread.start

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with suppress(OSError):  # the next text meets it too, in the thread that can act on it
            while not self._over.wait(1):
                self._draw()


class Line:
    """``with Line() as line: line.show("5. Data")``: the text with the time since the start.

    On a terminal one line is rewritten every second; in a log each new text is a line of its own.

    rich's ``Status`` is not used, because it prints nothing to a log or a dumb terminal, and fails
    with a traceback in its thread when the terminal closes. The frameworks' environments, in which
    the self-test runs, do not have rich.
    """

    def __init__(self, stream: TextIO | None = None, indent: str = "      ") -> None:
        self._stream = stream or sys.stdout
        self.moves = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._indent = indent
        self._text = self._detail = ""
        self._began = time.monotonic()
        self._ticker = EverySecond(self._draw)

    def __enter__(self) -> "Line":
        if self.moves:
            self._ticker.start()
        return self

    def show(self, text: str, detail: str = "") -> None:
        """Now at ``text``; ``detail`` is only shown where the line moves."""
        before, self._text = self._text, text
        self._detail = detail
        if self.moves:
            self._draw()
        elif text != before:
            self._write(f"{self._so_far()}  {printable(text)}\n")

    def __exit__(self, *_: object) -> None:
        if self.moves:
            self._ticker.stop()
            with suppress(OSError):  # the terminal is gone, and its line with it
                self._write("\r\x1b[2K")

    def _draw(self) -> None:
        if not self._text:
            return
        detail = f"  ({self._detail})" if self._detail else ""
        most = min(120, shutil.get_terminal_size().columns) - 1  # a second row would stay
        self._write("\r\x1b[2K" + f"{self._so_far()}  {printable(self._text + detail)}"[:most])

    def _so_far(self) -> str:
        return f"{self._indent}{clock(time.monotonic() - self._began)}"

    def _write(self, text: str) -> None:
        with naming(STDOUT):
            self._stream.write(text)
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
