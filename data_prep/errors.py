"""Define `DataError`, the exception for errors a user can fix, and escape untrusted text."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sized

#: Characters of an error's line; a cell or a name of a hostile file may have millions.
MAX_ERROR_LENGTH = 2000


class DataError(Exception):
    """An error in the data or the folder that the user can fix.

    The message is one line that says what is wrong, where, and how to fix it.
    """

    def __init__(self, text: str) -> None:
        text = printable(text)
        if len(text) > MAX_ERROR_LENGTH:  # keep what and where at the start, and the fix at the end
            text = f"{text[: MAX_ERROR_LENGTH // 2]} [...] {text[-MAX_ERROR_LENGTH // 2 :]}"
        super().__init__(text)

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows in a notebook instead of a traceback."""
        return [str(self)]


BROKEN_PIPE_EXIT_CODE = 141
"""Exit code after SIGPIPE: the program that reads the output has ended, as in `… | head`."""


def printable(text: str) -> str:
    """Return a text as one line without effect on a terminal."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


def count_text(some: Sized, one: str, more: str) -> str:
    """Return the number of items with the singular or plural text, as in "2 images are"."""
    return f"{len(some):,} {one if len(some) == 1 else more}"


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return the end of an error about an unknown name: the near one, or `otherwise`."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean '{near[0]}'?" if near else otherwise
