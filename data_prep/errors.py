"""The one exception a user of data_prep has to know, and how what strangers wrote is shown."""

from __future__ import annotations

#: Characters of an error's line; a cell or a name of a hostile file may have millions.
MAX_ERROR_LENGTH = 2000


class DataError(Exception):
    """Something about the data or the folder that the user can put right.

    Its text is one line: what is wrong, where, and what to do about it. The command line prints
    that line and exits with code 2. Whatever a file's name or contents bring into it, it stays one
    line that a terminal only shows: see `printable`.
    """

    def __init__(self, text: str) -> None:
        text = printable(text)
        if (
            len(text) > MAX_ERROR_LENGTH
        ):  # what and where stand in front, what to do about it at the end
            text = f"{text[: MAX_ERROR_LENGTH // 2]} [...] {text[-MAX_ERROR_LENGTH // 2 :]}"
        super().__init__(text)

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in a notebook in place of a traceback."""
        return [str(self)]


BROKEN_PIPE_EXIT_CODE = 141
"""Exit code where the program that reads the output has ended, as of `… | head`: SIGPIPE's."""


def printable(text: str) -> str:
    r"""A text as one line without effect on a terminal: `\x1b` for an escape, `\n` for a new line.

    Bytes of a file name that are not UTF-8 become `\udcff` and the like.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )
