"""Files that a stranger's list may name: those within the folder, and no others."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from data_prep.errors import DataError

#: What no path within a folder needs: a start at the top, a way up, a drive, control
#: characters, what is not UTF-8.
UNSAFE_PATH = re.compile(
    r"^/|(?:^|/)\.\.?(?:/|$)|//|/$|^[A-Za-z]:|[\x00-\x1f\x7f\\\ud800-\udfff]|^$"
)


#: Whatever `UNSAFE_PATH` finds shows one of these, where each path is a line, or is not printable.
SUSPICIOUS = ("./", ".\n", "//", "\n/", "/\n", "\n\n", ":", "\\")


def is_utf8(text: str) -> bool:
    """Whether a text can be written: half a pair of surrogates cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def any_suspicious(paths: Sequence[str]) -> bool:
    """Whether one of many paths may be unsafe: false is sure, true is to be looked at singly."""
    text = "\n".join(["", *paths, ""])
    if text.count("\n") != len(paths) + 1 or not text.replace("\n", "").isprintable():
        return True
    return any(sign in text for sign in SUSPICIOUS)


def check_files_exist(folder: Path, paths: Sequence[str], listed_in: Path) -> None:
    """Refuse a list of (safe) paths of which one is not there, or leads out through a link.

    Folders are listed once each, so that a million files take seconds.
    """
    by_folder: dict[str, list[str]] = {}
    for path in paths:
        place, _, name = path.rpartition("/")
        by_folder.setdefault(place, []).append(name)
    absent = 0
    first = ""
    for place, names in by_folder.items():
        there = list_folder(folder, place)
        for name in names:
            if name not in there:
                first = first or os.path.join(place, name)  # noqa: PTH118
                absent += 1
            elif there[name]:
                refuse_outside(folder, os.path.join(place, name))  # noqa: PTH118
    if absent:
        raise DataError(
            f"{folder}: {absent:,} of the {len(paths):,} images named in {listed_in.name} are"
            f" missing, the first is {first}; add them, or mend the path in the mapping"
        )


def list_folder(folder: Path, place: str) -> dict[str, bool]:
    """The names in a folder within the folder, each with whether it is a link; none if it is not
    there. Raises `DataError` if it leads out."""
    refuse_outside(folder, place)
    try:
        with os.scandir(folder / place) as entries:
            return {entry.name: entry.is_symlink() for entry in entries}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise DataError(f"{folder / place}: cannot be read ({error.strerror})") from None


def refuse_outside(folder: Path, place: str) -> None:
    """`DataError` for a path that a link leads out of the folder."""
    home, end = os.path.realpath(folder), os.path.realpath(folder / place)
    if end != home and not end.startswith(os.path.join(home, "")):  # noqa: PTH118
        raise DataError(
            f"{folder / place}: a link that leads out of the folder, which a data set must not;"
            " put the files themselves there, or name the folder that holds them"
        )
