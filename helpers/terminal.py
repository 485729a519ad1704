"""Print to the terminal: lines and tables."""

import sys
from collections.abc import Sequence

from data_prep.errors import printable
from helpers.errors import STDOUT, naming


def say(text: object = "", *, error: bool = False) -> None:
    """Print lines at once, as plain text; all output but the progress bars uses this function.

    Raises:
        OSError: the stream cannot be written; it names standard output or standard error.
    """
    with naming("standard error" if error else STDOUT):
        lines = "\n".join(map(printable, str(text).split("\n")))
        print(lines, file=sys.stderr if error else sys.stdout, flush=True)


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
