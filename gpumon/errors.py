"""This module defines gpumon's errors, its warnings and its printable text."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass


def printable(text: object) -> str:
    """The text on one line, with escapes for whatever a terminal would act on or cannot show."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in " ".join(str(text).splitlines())
    )


class MonitorError(Exception):
    """Every error of gpumon that a user can fix; a notebook shows only its one line.

    Args:
        message: the text; line breaks and control characters are replaced.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in a notebook in place of a traceback."""
        return [str(self)]


@dataclass(eq=False)
class Unavailable(Exception):
    """A series cannot be read; the reason is what the trace keeps.

    permanent: asking again is pointless. lost: the whole device is gone. wrong_request: the user
    asked for what is not there. code: NVML's own number of the error.
    """

    reason: str
    permanent: bool = False
    lost: bool = False
    wrong_request: bool = False
    code: int | None = None

    def __str__(self) -> str:
        return self.reason


def warn(message: str) -> None:
    """Warn at the line of the user's program that called gpumon."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "gpumon":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, RuntimeWarning, stacklevel=level)


@contextlib.contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Print a command's warnings as lines, whatever Python's warning filters are.

    A warning that is an error would replace the exit code of the recorded program.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("always", RuntimeWarning)
        warnings.showwarning = lambda message, *_: print(
            f"gpumon: warning: {printable(message)}", file=sys.stderr
        )
        yield


@contextlib.contextmanager
def required_for(what: str) -> Iterator[None]:
    """Guard an optional import: if it fails, a MonitorError names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or str(error)).partition(".")[0]
        raise MonitorError(
            f"{what} needs {package}, which this environment does not have: "
            "pip install 'gpumon-phases[plot]'"
        ) from error
