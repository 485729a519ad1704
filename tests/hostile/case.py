"""One hostile thing, the command that meets it, and the line that it must draw."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Case(NamedTuple):
    """``lay`` puts the thing into an empty folder and returns the command that reads it."""

    name: str
    lay: Callable[[Path], list[str]]
    says: str
    """Pattern that is found in the command's one line on stderr."""
    code: int = 2
    keeps: tuple[str, ...] = ()
    """Files of the folder that must be there afterwards, byte for byte."""
