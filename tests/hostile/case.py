"""One hostile thing, the command that meets it, and the line that it must draw."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

Lay = Callable[[Path], list[str]]
Content = str | bytes | Callable[[Path], object]


class Case(NamedTuple):
    """``lay`` puts the thing into an empty folder and returns the command that reads it."""

    name: str
    lay: Lay
    says: str
    """Pattern that is found in the command's one line on stderr."""
    code: int = 2
    keeps: tuple[str, ...] = ()
    """Files of the folder that must be there afterwards, byte for byte."""


def laid(command: str, files: Mapping[str, Content]) -> Lay:
    """Lays files with these contents, or what these functions make; the folder is ``{}``."""

    def lay(folder: Path) -> list[str]:
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if callable(content):
                content(path)
            else:
                path.write_bytes(content.encode() if isinstance(content, str) else content)
        return [word.replace("{}", str(folder)) for word in command.split()]

    return lay
