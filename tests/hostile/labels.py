"""Label files and lists that are none, that lie, or that want to be more than text."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path

from data_prep_tools import HEADER, row

from hostile.case import Case

LABELS = "Data_Entry_2017.csv"


def content(data: bytes, name: str = LABELS) -> Callable[[Path], list[str]]:
    """A folder with these bytes as its label file, and what reads it without the images."""

    def lay(folder: Path) -> list[str]:
        (folder / name).write_bytes(data)
        return ["data-prep", "verify", "--quick", str(folder)]

    return lay


def rows(*lines: str, header: str = HEADER) -> Callable[[Path], list[str]]:
    return content("".join(f"{line}\n" for line in (header, row("fine.png"), *lines)).encode())


def pipe(folder: Path) -> list[str]:
    os.mkfifo(folder / LABELS)
    return ["data-prep", "verify", "--quick", str(folder)]


PORTAL = b"<!DOCTYPE html>\n<html><body>Welcome! Please log in.</body></html>\n"
WHOLE = f"{HEADER}\n{row('a.png')}\n"

CASES = [
    Case("labels-portal-page", content(PORTAL), "no column 'Image Index'"),
    Case("labels-utf-16", content(WHOLE.encode("utf-16")[:-1]), "not a text file in UTF-8"),
    Case("labels-climbing", rows(row("../../etc/passwd")), "without folders"),
    Case("labels-escape", rows(row("\x1b[2J\x1b]0;owned\x07.png")), r"\\x1b\[2J.*without folders"),
    Case("labels-short-row", rows("a.png,Mass,0"), "line 3: 3 columns, the header has 11"),
    Case(
        "labels-gz-bomb",
        content(gzip.compress(bytes(8 << 20), 9) * 33, f"{LABELS}.gz"),
        "unpacks to more than",
    ),
    Case("labels-pipe", pipe, "no label file"),
]
